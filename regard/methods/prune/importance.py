"""How much the loss depends on each head and each feed-forward unit (Michel et al. 2019, 4.1).

    I = E_x |∂L(x) / ∂ξ|,    with gates ξ = 1 on the output of a head or of a feed-forward unit

Every text of a batch has its own gates, so that one backward pass gives the gradient for each text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.attention import Kernel
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Pattern
from regard.core.errors import InputError
from regard.formats.directory import Checkpoint
from regard.models.extensions.pruned import networks_of, sites
from regard.models.state import State
from regard.objectives.base import Batch, Objective
from regard.training.train_module import moved

# (name of the part, its output) -> the gate that the output is multiplied by, [B, heads or units].
Gate = Callable[[str, Tensor], Tensor]
Run = Callable[[], Tensor]  # the loss of a batch


class Importance(NamedTuple):
    heads: dict[str, Tensor]  # by attention
    units: dict[str, Tensor]  # by network
    texts: int


@contextmanager
def gated(model: nn.Module, heads: Gate, units: Gate) -> Iterator[None]:
    """Sends every head and every feed-forward unit through a gate inside the `with` block."""
    parts = [(name, part) for name, attentions in sites(model).items() for part in attentions]
    kernels = [part.kernel for _, part in parts]
    hooks = []
    try:
        for name, part in parts:
            part.kernel = gated_kernel(name, part.kernel, heads)
        for name, network in networks_of(model).items():
            hook = partial(gate_inputs, name, units)
            hooks.append(network.narrow.register_forward_pre_hook(hook))
        yield
    finally:
        for (_, part), kernel in zip(parts, kernels, strict=True):
            part.kernel = kernel
        for handle in hooks:
            handle.remove()


def gated_kernel(name: str, inner: Kernel, gate: Gate) -> Kernel:
    def kernel(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        y = inner(pattern, q, k, v, how)  # [B, H, Q, D]
        return y * gate(name, y)[..., None, None]

    return kernel


def gate_inputs(name: str, gate: Gate, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Multiplies the activations [B, T, units] in front of the second linear layer with the
    gate."""
    return inputs[0] * gate(name, inputs[0])[:, None]


def importances(model: nn.Module, runs: Iterable[Run]) -> Importance:
    """Returns the mean importance over all texts. The model is in evaluation mode (no dropout), and
    nothing of it changes."""
    gates: dict[tuple[bool, str], list[Tensor]] = {}
    sums: dict[tuple[bool, str], Tensor] = {}

    def fresh(of_heads: bool, name: str, y: Tensor) -> Tensor:
        shape = (y.size(0), y.size(1 if of_heads else -1))
        gate = torch.ones(shape, dtype=y.dtype, device=y.device, requires_grad=True)
        gates.setdefault((of_heads, name), []).append(gate)
        return gate

    texts = 0
    with at_rest(model), gated(model, partial(fresh, True), partial(fresh, False)):
        for run in runs:
            gates.clear()
            loss = run()
            flat = [gate for own in gates.values() for gate in own]
            gradients = iter(torch.autograd.grad(loss, flat, materialize_grads=True))
            for key, own in gates.items():
                slopes = torch.stack([next(gradients) for _ in own]).sum(0)  # by text
                value = slopes.double().abs().sum(0).cpu()
                sums[key] = sums[key] + value if key in sums else value
            texts += flat[0].size(0)
    if not texts:
        raise InputError("the data holds no text to measure importance on; give other --data")
    heads, units = (
        {name: value / texts for (of_heads, name), value in sums.items() if of_heads is wanted}
        for wanted in (True, False)
    )
    return Importance(heads, units, texts)


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Puts the model into evaluation mode without gradients for its parameters (only the gates get
    gradients), and restores both afterwards."""
    training = model.training
    learning = [(p, p.requires_grad) for p in model.parameters()]
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        model.train(training)
        for parameter, learns in learning:
            parameter.requires_grad_(learns)


def normalized(scores: dict[str, Tensor]) -> dict[str, Tensor]:
    """Divides the scores of each layer by their L2 norm, so that layers can be compared (Molchanov
    et al. 2017)."""
    return {name: v / v.norm().clamp_min(1e-30) for name, v in scores.items()}


# -- losses from data


@contextmanager
def losses(
    loaded: Checkpoint,
    data: Sequence[str],
    samples: int,
    limit: int | None,
    testing: dict[str, Any],
) -> Iterator[Iterator[Run]]:
    """Yields functions that compute the losses of batches: of the model's own task on labeled data,
    or of language modeling on a text.

    At most `samples` samples are used (0: all). The data are read as `regard evaluate` reads them.
    """
    from regard.evaluation.language_modeling import corpus_for, first_documents, objective_for
    from regard.evaluation.test import Plan, examples_asked

    plan = Plan(limit=limit or 0, **testing)
    if examples_asked(loaded, data, plan):
        yield labeled_losses(loaded, data, plan, samples)
        return
    with corpus_for(loaded, data, plan) as corpus:
        objective = objective_for(loaded, first_documents(corpus, limit or 0), plan)
        yield text_losses(loaded.model, objective, samples)


def labeled_losses(
    loaded: Checkpoint, data: Sequence[str], plan: Any, samples: int
) -> Iterator[Run]:
    from regard.data.batching import by_tokens
    from regard.evaluation.predict import Predictor
    from regard.evaluation.predictors import predictor_for
    from regard.evaluation.test import examples_of

    predictor: Any = predictor_for(loaded, task=plan.task)
    examples, _ = examples_of(data, predictor, plan)
    examples = examples[:samples] if samples else examples
    if not isinstance(predictor, Predictor):
        yield from generation_losses(loaded.model, predictor, examples)
        return
    objective: Any = predictor.encode(examples)
    model = objective.opened(loaded.model, loaded.path)
    objective.check(model)
    like = next(model.parameters())
    for places in by_tokens(objective.rows.sizes):
        batch = objective.collate([objective.sample(0, place) for place in places])
        yield partial(weighted_loss, objective, model, moved(batch, like.device, like.dtype), None)


def generation_losses(model: Any, predictor: Any, examples: Sequence[Any]) -> Iterator[Run]:
    """Yields, for a model that writes its answers as text, the surprisal of the correct answers."""
    from regard.data.batching import by_tokens

    scribe, context = predictor.scribe, getattr(model.config, "context", None)
    sources, _ = scribe.sources(examples, predictor.room)
    right = [scribe.task.target(example) for example in examples]
    pairs = list(zip(sources, scribe.closed(right), strict=True))
    if context is not None:  # a row is source and target, without the last target token
        pairs = [(source, target[: context + 1 - len(source)]) for source, target in pairs]
    for places in by_tokens(np.array([len(source) + len(target) for source, target in pairs])):
        yield partial(surprise, model, [pairs[place] for place in places])


def surprise(model: Any, pairs: Sequence[tuple[list[int], list[int]]]) -> Tensor:
    """Returns the summed surprisal of the targets, each given its source."""
    from regard.decoding.decode_state import right_padded
    from regard.objectives.reading import read_on

    if model.kind == "encoder-decoder":
        source, attention_mask = right_padded([source for source, _ in pairs], model.device)
        begun = [[model.config.start_id, *target[:-1]] for _, target in pairs]
        hidden, firsts = (
            model(source, right_padded(begun, model.device)[0], attention_mask),
            [0] * len(pairs),
        )
    else:
        rows = [[*source, *target[:-1]] for source, target in pairs]
        hidden = read_on(model, right_padded(rows, model.device)[0])
        firsts = [len(source) - 1 for source, _ in pairs]
    sizes = [len(target) for _, target in pairs]
    places = zip(hidden, firsts, sizes, strict=True)
    wanted = torch.tensor([word for _, target in pairs for word in target], device=model.device)
    asking = torch.cat([row[first : first + size] for row, first, size in places])
    y: Tensor = model.output.surprisal(asking, wanted)
    return y


def text_losses(model: Any, objective: Objective, samples: int) -> Iterator[Run]:
    from regard.training.parallel import ProcessGroup
    from regard.training.train_module import steps

    like, state = next(model.parameters()), None
    for first, places, _ in steps(objective, ProcessGroup(), samples):
        state = objective.begin(model, len(places)) if first else state
        batch = objective.collate([objective.get(place) for place in places])
        yield partial(weighted_loss, objective, model, moved(batch, like.device, like.dtype), state)


def weighted_loss(objective: Objective, model: Any, batch: Batch, state: State | None) -> Tensor:
    sums = objective.loss(model, batch, state).sums
    weighted = [objective.weights.get(name, 1.0) * value for name, value in sums.items()]
    return torch.stack([value.reshape(()) for value in weighted]).sum()
