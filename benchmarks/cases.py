"""One training step and one forward pass of each model, ours and the peer's, on the same weights
and tokens.

Every model has 6 layers of width 512, its paper's vocabulary, and its paper's dropout, also in the
attention. A case is built from its name in any process, so that memory can be measured in a fresh
one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.formats.directory import save
from regard.models import FAMILIES
from regard.models.base import Model

Run = Callable[[Any], Tensor]  # a model -> the loss of one batch


@dataclass(frozen=True)
class Case:
    """A model, a batch, and the function of each side that turns the batch into a loss."""

    family: str
    changes: dict[str, Any]
    batch: int
    length: int
    make: Callable[[Case, Any], dict[str, Tensor]]
    ours: Callable[[Any, dict[str, Tensor]], Tensor]
    peer: Callable[[Any, dict[str, Tensor]], Tensor] | None
    peer_class: str = ""
    forward_ours: Callable[[Any, dict[str, Tensor]], Any] | None = None
    forward_peer: Callable[[Any, dict[str, Tensor]], Any] | None = None

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    def model(self) -> Model:
        torch.manual_seed(0)
        model, config = FAMILIES[self.family].model, FAMILIES[self.family].config
        return model(config().replace(**self.changes)).initialize()

    def inputs(self) -> dict[str, Tensor]:
        torch.manual_seed(1)
        return self.make(self, FAMILIES[self.family].config().replace(**self.changes))


def text(case: Case, config: Any) -> dict[str, Tensor]:
    """Returns random tokens, and the next token of each."""
    tokens = torch.randint(
        5, 20000 if config.vocab_size > 20000 else config.vocab_size, (case.batch, case.length + 1)
    )
    return {"tokens": tokens[:, :-1].contiguous(), "next": tokens[:, 1:].contiguous()}


def masked(case: Case, config: Any) -> dict[str, Tensor]:
    """Masks a seventh of the tokens, exactly the same number in each text."""
    tokens = text(case, config)["tokens"]
    count = round(0.15 * case.length)
    places = torch.stack(
        [torch.randperm(case.length)[:count].sort().values for _ in range(case.batch)]
    )
    labels = torch.full_like(tokens, -100).scatter(1, places, tokens.gather(1, places))
    return {"tokens": tokens.scatter(1, places, 4), "places": places, "labels": labels,
            "targets": tokens.gather(1, places)}  # fmt: skip


def long(case: Case, config: Any) -> dict[str, Tensor]:
    """Returns a masked text whose first token has global attention."""
    batch = masked(case, config)
    marks = torch.zeros_like(batch["tokens"], dtype=torch.bool)
    marks[:, 0] = True
    return batch | {"global": marks}


def permuted(case: Case, config: Any) -> dict[str, Tensor]:
    """Returns a batch of XLNet's task: the last sixth of a random order is predicted."""
    tokens = text(case, config)["tokens"]
    count = case.length // 6
    places = torch.stack([torch.randperm(case.length)[:count] for _ in range(case.batch)])
    order = torch.full_like(tokens, -1).scatter(
        1, places, torch.arange(count).expand(case.batch, -1)
    )
    target = order >= 0
    asks = torch.where(target, order, order + 1)
    hidden = (asks[:, :, None] <= order[:, None, :]) & target[:, None, :]
    mapping = nn.functional.one_hot(places, case.length).float()
    return {"tokens": tokens, "places": places, "order": order, "targets": tokens.gather(1, places),
            "hidden": hidden.float(), "mapping": mapping}  # fmt: skip


def pairs(case: Case, config: Any) -> dict[str, Tensor]:
    """Returns a source and a target, each of half the length."""
    half = case.length // 2
    draw = torch.randint(5, config.vocab_size, (2, case.batch, half + 1))
    return {"source": draw[0, :, 1:].contiguous(), "tokens": draw[1, :, :-1].contiguous(),
            "next": draw[1, :, 1:].contiguous()}  # fmt: skip


def mean(model: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    loss: Tensor = (
        model.output.surprisal(hidden.flatten(0, -2), targets.flatten()) / targets.numel()
    )
    return loss


def at(hidden: Tensor, places: Tensor) -> Tensor:
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.size(2)))


def our_causal(m: Any, b: dict[str, Tensor]) -> Tensor:
    return mean(m, m(b["tokens"]), b["next"])


def our_recurrent(m: Any, b: dict[str, Tensor]) -> Tensor:
    """Returns the loss with a full memory, which the peer always has."""
    return mean(m, m(b["tokens"], state=m.zeros(b["tokens"].size(0))), b["next"])


def our_masked(m: Any, b: dict[str, Tensor]) -> Tensor:
    return mean(m, at(m(b["tokens"]), b["places"]), b["targets"])


def our_long(m: Any, b: dict[str, Tensor]) -> Tensor:
    return mean(m, at(m(b["tokens"], global_tokens=b["global"]), b["places"]), b["targets"])


def our_permuted(m: Any, b: dict[str, Tensor]) -> Tensor:
    return mean(m, m(b["tokens"], order=b["order"], targets=b["places"]), b["targets"])


def our_pairs(m: Any, b: dict[str, Tensor]) -> Tensor:
    return mean(m, m(b["source"], b["tokens"]), b["next"])


def flat_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


CAUSAL = {
    "make": text,
    "ours": our_causal,
    "peer": lambda m, b: m(b["tokens"], labels=b["tokens"], use_cache=False).loss,
    "forward_ours": lambda m, b: m.logits(m(b["tokens"])),
    "forward_peer": lambda m, b: m(b["tokens"], use_cache=False).logits,
}
SIZE = {"width": 512, "layers": 6, "heads": 8}
RECURRENT = SIZE | {
    "head_size": 64,
    "ffn_size": 2048,
    "mem_len": 256,
    "clamp_len": 0,
    "same_length": False,
}
PAIRS = {
    "make": pairs,
    "ours": our_pairs,
    "peer": lambda m, b: m(input_ids=b["source"], labels=b["next"], use_cache=False).loss,
    "forward_ours": lambda m, b: m.logits(m(b["source"], b["tokens"])),
    "forward_peer": lambda m, b: m(
        input_ids=b["source"], decoder_input_ids=b["tokens"], use_cache=False
    ).logits,
}  # fmt: skip
LONG = Case(
    "longformer", SIZE | {"ffn_size": 2048, "window": 128}, 1, 4096, long, our_long,
    lambda m, b: m(b["tokens"], global_attention_mask=b["global"].long(), labels=b["labels"]).loss,
    "LongformerForMaskedLM",
    lambda m, b: m(b["tokens"], global_tokens=b["global"]),
    lambda m, b: m.longformer(b["tokens"], global_attention_mask=b["global"].long())[0],
)  # fmt: skip
GPT2 = Case("gpt", SIZE, 8, 256, peer_class="GPT2LMHeadModel", **CAUSAL)

CASES: dict[str, Case] = {
    "transformer": Case("transformer", {}, 8, 256, peer_class="MarianMTModel", **PAIRS),
    "gpt1": Case("gpt", SIZE | {"vocab_size": 40478, "context": 512, "norm": "post"}, 8, 256,
                 peer_class="OpenAIGPTLMHeadModel", **(CAUSAL | {
                     "peer": lambda m, b: m(b["tokens"], labels=b["tokens"]).loss,
                     "forward_peer": lambda m, b: m(b["tokens"]).logits})),
    "gpt2": GPT2,
    "gpt3": replace(GPT2, changes=SIZE | {"context": 2048, "band": 128}, batch=2, length=1024,
                    peer=None, forward_peer=None),
    "gpt3-dense": replace(GPT2, changes=SIZE | {"context": 2048}, batch=2, length=1024,
                          peer=None, forward_peer=None),
    "bert": Case("bert", SIZE | {"ffn_size": 2048}, 8, 256, masked, our_masked,
                 lambda m, b: flat_loss(m(b["tokens"]).prediction_logits, b["labels"]),
                 "BertForPreTraining",
                 lambda m, b: m(b["tokens"]), lambda m, b: m.bert(b["tokens"]).last_hidden_state),
    "roberta": Case("roberta", SIZE | {"ffn_size": 2048}, 8, 256, masked, our_masked,
                    lambda m, b: m(b["tokens"], labels=b["labels"]).loss, "RobertaForMaskedLM",
                    lambda m, b: m(b["tokens"]),
                    lambda m, b: m.roberta(b["tokens"]).last_hidden_state),
    "llama": Case("llama", SIZE | {"kv_heads": 2, "ffn_size": 1408}, 8, 256,
                  peer_class="LlamaForCausalLM", **CAUSAL),
    "transformer-xl": Case("transformer-xl", RECURRENT | {"vocab_size": 204, "cutoffs": (),
                           "ratio": 1}, 8, 256, text, our_recurrent, None,
                           forward_ours=lambda m, b: m(b["tokens"], state=m.zeros(8))),
    "transformer-xl-words": Case("transformer-xl", RECURRENT, 8, 256, text, our_recurrent, None,
                                 forward_ours=lambda m, b: m(b["tokens"], state=m.zeros(8))),
    "xlnet": Case("xlnet", SIZE | {"head_size": 64, "ffn_size": 2048}, 4, 512, permuted,
     our_permuted,
                  lambda m, b: flat_loss(m(b["tokens"], perm_mask=b["hidden"],
                                           target_mapping=b["mapping"]).logits, b["targets"]),
                  "XLNetLMHeadModel",
                  lambda m, b: m(b["tokens"], order=b["order"], targets=b["places"]),
                  lambda m, b: m.transformer(b["tokens"], perm_mask=b["hidden"],
                                             target_mapping=b["mapping"]).last_hidden_state),
    "longformer": LONG,
    "t5": Case("t5", {}, 8, 256, peer_class="T5ForConditionalGeneration", **PAIRS),
    "lstm": Case("lstm", {"width": 512, "layers": 6, "vocab_size": 50257}, 8, 256, text,
                 our_causal, None, forward_ours=lambda m, b: m.logits(m(b["tokens"]))),
}  # fmt: skip


@contextlib.contextmanager
def precision(dtype: torch.dtype) -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        yield


def peer_model(case: Case, model: Model) -> Any:
    """Returns the peer with our weights: it opens the directory that we save."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as directory:
        save(model, directory)
        return getattr(transformers, case.peer_class).from_pretrained(
            directory, dtype=torch.float32
        )


def training(
    case: Case, model: Any, run: Callable[[Any, dict[str, Tensor]], Tensor], dtype: torch.dtype
) -> Callable[[], None]:
    """Returns a step of forward pass, backward pass and optimizer."""
    batch, optimizer = case.inputs(), torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    model.train()

    def step() -> None:
        model.train()
        with precision(dtype):
            loss = run(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def forward(
    case: Case, model: Any, run: Callable[[Any, dict[str, Tensor]], Any], dtype: torch.dtype
) -> Callable[[], None]:
    batch = case.inputs()

    def step() -> None:
        model.eval()
        with torch.no_grad(), precision(dtype):
            run(model, batch)

    return step


def build(
    name: str,
    side: str,
    kind: str,
    dtype: torch.dtype,
    changes: dict[str, Any] | None = None,
    length: int = 0,
    batch: int = 0,
) -> Callable[[], None]:
    """Builds a step from the names of its parts, in a fresh process."""
    case = CASES[name]
    case = replace(
        case,
        changes=case.changes | (changes or {}),
        length=length or case.length,
        batch=batch or case.batch,
    )
    model: Any = case.model()
    if side == "peer":
        model = peer_model(case, model)
    run = {
        ("ours", "train"): case.ours,
        ("peer", "train"): case.peer,
        ("ours", "forward"): case.forward_ours,
        ("peer", "forward"): case.forward_peer,
    }[side, kind]
    assert run is not None
    return (training if kind == "train" else forward)(case, model, run, dtype)
