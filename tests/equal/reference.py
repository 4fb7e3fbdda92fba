"""Comparing with transformers: weights in which no error can hide, exchange both ways."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from regard.api import LoadedModel, load
from regard.models.state import State

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TOLERANCE = 1e-5  # in fp32, of the largest number compared (or of 1 where all are smaller)
LENGTHS = [14, 5, 9, 1]  # of texts in a padded batch
FROZEN = ("embed_positions",)  # sines and cosines: not weights


def scramble(model: Any, std: float = 0.2, seed: int = 0) -> Any:
    """Matrices ~ N(0, std), biases and gains moved by as much: fresh zeros and ones hide errors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(frozen in name for frozen in FROZEN):
                continue
            noise = torch.randn(parameter.shape, generator=generator) * std
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    return model.eval()


def ours(reference: Any, directory: Path, **options: Any) -> LoadedModel:
    """The reference, saved as it saves itself and opened by us without a word of complaint."""
    reference.save_pretrained(directory)
    with warnings.catch_warnings(action="error"):
        return load(directory, **options)


def theirs(loaded: LoadedModel, directory: Path, kind: Any) -> Any:
    """Saved by us, opened by the reference: no tensor too many, too few or of another shape."""
    loaded.save(directory)
    model, report = kind.from_pretrained(directory, output_loading_info=True)
    assert {name: list(keys) for name, keys in report.items() if keys} == {}
    return model.eval()


def same_config(before: Any, after: Any) -> None:
    """Every field of the reference's configuration survives the way through us."""
    passing = {"transformers_version", "_name_or_path", "dtype", "torch_dtype"}
    old, new = before.to_dict(), after.to_dict()
    assert {k: v for k, v in old.items() if k not in passing and new.get(k) != v} == {}


def close(actual: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    assert actual.shape == expected.shape
    assert actual.isfinite().all()
    scale = max(1.0, float(expected.abs().max()))
    difference = float((actual - expected).abs().max())
    assert difference <= tolerance * scale, (
        f"differs by {difference:.2e}; numbers up to {scale:.3g}"
    )


def all_close(
    actual: list[Tensor], expected: list[Tensor], attention_mask: Tensor | None = None
) -> None:
    """Layer by layer, at the real rows."""
    assert len(actual) == len(expected)
    for ours_, theirs_ in zip(actual, expected, strict=True):
        chosen = slice(None) if attention_mask is None else attention_mask
        close(ours_[chosen], theirs_[chosen])


@contextmanager
def layers(
    modules: nn.ModuleList, pick: Callable[[Any], Tensor] | None = None
) -> Iterator[list[Tensor]]:
    """What goes into the first of these layers, and what comes out of each."""
    seen: list[Tensor] = []

    def before(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(args[0] if args else named["hidden_states"])

    def after(module: nn.Module, args: Any, result: Any) -> None:
        first = result[0] if isinstance(result, tuple | list) else result
        seen.append(first if pick is None else pick(result))

    hooks = [modules[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [module.register_forward_hook(after) for module in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def words(vocab_size: int, *shape: int, low: int = 0, seed: int = 1) -> Tensor:
    return torch.randint(low, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def marks(lengths: list[int], side: str) -> Tensor:
    """[B, T], False at padding, which stands on the left or on the right."""
    at = torch.arange(max(lengths))[None]
    length = torch.tensor(lengths)[:, None]
    return at >= max(lengths) - length if side == "left" else at < length


def position_ids(attention_mask: Tensor) -> Tensor:
    """Positions that count real tokens, as the reference has to be told them."""
    return (attention_mask.long().cumsum(1) - 1).clamp_min(0)


# -- comparisons that hold for several families


def there_and_back(
    reference: Any, stack: nn.ModuleList, tokens: Tensor, place: Path
) -> LoadedModel:
    """Every layer and the logits; saved by us the reference computes the same to the bit, and what
    we open again has the same weights.
    """
    opened = ours(reference, place / "theirs")
    with layers(stack) as expected:
        wanted = reference(tokens).logits
    with layers(opened.model.blocks) as rows:
        close(opened.model.logits(opened.model(tokens)), wanted)
    all_close(rows, expected)
    back = theirs(opened, place / "ours", type(reference))
    assert torch.equal(back(tokens).logits, wanted)
    same_config(reference.config, back.config)
    again = load(place / "ours").model.state_dict()
    assert all(torch.equal(again[key], value) for key, value in opened.model.state_dict().items())
    return opened


def padded_decoder(reference: Any, stack: nn.ModuleList, model: Any, side: str) -> None:
    """Padding changes nothing: beside the reference that is told positions, and text by text."""
    attention_mask = marks(LENGTHS, side)
    tokens = words(97, *attention_mask.shape)
    with layers(stack) as expected:
        wanted = reference(
            tokens, attention_mask=attention_mask.long(), position_ids=position_ids(attention_mask)
        ).logits
    with layers(model.blocks) as rows:
        logits = model.logits(model(tokens, attention_mask))
    all_close([*rows, logits], [*expected, wanted], attention_mask)
    for i, row in enumerate(attention_mask):
        close(logits[i][row], reference(tokens[i : i + 1, row]).logits[0])


def cached_decoder(reference: Any, model: Any, side: str | None) -> State:
    """A prompt at once, then word by word: the same logits, and the same keys and values kept."""
    tokens = words(97, 4, 20)
    attention_mask = torch.ones(4, 20, dtype=torch.bool)
    if side is not None:
        attention_mask[:, :14] = marks(LENGTHS, side)
    state, past = model.start(4, 20), transformers.DynamicCache(config=reference.config)
    for start, end in [(0, 14), *((i, i + 1) for i in range(14, 20))]:
        part = attention_mask[:, start:end] if side is not None else None
        mine = model.logits(model(tokens[:, start:end], part, state))
        wanted = reference(
            tokens[:, start:end], attention_mask=attention_mask[:, :end].long(),
             past_key_values=past,
            position_ids=position_ids(attention_mask)[:, start:end],
        ).logits  # fmt: skip
        close(mine[attention_mask[:, start:end]], wanted[attention_mask[:, start:end]])
    for layer, their_layer in zip(state.layers, past.layers, strict=True):
        close(
            layer.keys.transpose(1, 2)[attention_mask],
            their_layer.keys.transpose(1, 2)[attention_mask],
        )
        close(
            layer.values.transpose(1, 2)[attention_mask],
            their_layer.values.transpose(1, 2)[attention_mask],
        )
    return state


def compare_pair(
    reference: Any, stacks: tuple[Any, Any], model: Any, source: Tensor, target: Tensor
) -> Tensor:
    """Every layer of an encoder and a decoder, what the encoder gives, and the logits."""
    with layers(stacks[0]) as encoder, layers(stacks[1]) as decoder:
        result = reference(input_ids=source, decoder_input_ids=target)
    with layers(model.encoder_blocks) as read, layers(model.decoder_blocks) as written:
        encoded = model.encode(source)
        hidden = model.decode(target, model.project_source(encoded))
    all_close(read, encoder)
    all_close(written, decoder)
    close(encoded, result.encoder_last_hidden_state)
    close(model.logits(hidden), result.logits)
    close(model(source, target), hidden)
    logits: Tensor = result.logits
    return logits


def cached_pair(reference: Any, encoder: Any, model: Any) -> None:
    """Word by word, with the source read once and its padding hidden at every step."""
    there = marks([13, 6, 9], "right")
    source, target = words(97, *there.shape), words(97, 3, 10, seed=2)
    encoded = encoder(input_ids=source, attention_mask=there.long())
    fixed = model.project_source(model.encode(source, there))
    state = model.start(3, 10)
    caches = [transformers.DynamicCache(config=reference.config) for _ in range(2)]
    past = transformers.EncoderDecoderCache(*caches)
    for start, end in [(0, 3), *((i, i + 1) for i in range(3, 10))]:
        wanted = reference(
            encoder_outputs=encoded, attention_mask=there.long(), past_key_values=past,
            decoder_input_ids=target[:, start:end], use_cache=True,
        ).logits  # fmt: skip
        mine = model.decode(target[:, start:end], fixed, there, state=state)
        close(model.logits(mine), wanted)


def learned_pair(reference: Any, model: Any, first: int, labels: Tensor) -> None:
    """One training step of both: the same loss; gradients are left for the caller to compare."""
    there = marks([13, 6, 9], "right")
    source = words(96, *there.shape)
    loss = reference(input_ids=source, attention_mask=there.long(), labels=labels).loss
    loss.backward()
    shifted = torch.cat([torch.full((3, 1), first), labels[:, :-1]], 1)
    hidden = model(source, shifted, there).flatten(0, 1)
    our_loss = model.output.surprisal(hidden, labels.flatten()) / labels.numel()
    our_loss.backward()
    close(our_loss.detach(), loss.detach())


def same_gradients(pairs: list[tuple[Any, Any]]) -> None:
    for mine, expected in pairs:
        assert (mine - expected).norm() <= 1e-5 * expected.norm()
