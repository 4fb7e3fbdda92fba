"""What the papers print beside the architecture: starts, dropout, norms, activations, ties."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention.attention import Attention, unseen
from regard.attention.block import ACTIVATIONS, FeedForward, PostNorm, PreNorm
from regard.attention.dropout import Dropout
from regard.attention.recorder import record
from regard.models import sizes
from regard.models.base import Model
from regard.models.t5 import T5Stack
from tests.models.small import SMALL, VOCABULARY, run, small


def about(weight: Tensor, std: float, mean: float = 0.0) -> None:
    """Deviation and mean, as closely as that many draws allow."""
    weight, count = weight.detach(), weight.numel()
    assert abs(float(weight.std()) - std) < 4 * std / math.sqrt(2 * count)
    assert abs(float(weight.mean()) - mean) < 4 * std / math.sqrt(count)


def matrices(model: Model) -> dict[str, Tensor]:
    kinds = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Embedding)}
    return {name: module.weight for name, module in kinds.items()}


# --- starts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_every_number_is_set(name: str) -> None:
    """Nothing is left as memory happened to be, and the seed decides everything."""
    model = small(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    torch.manual_seed(0)
    model.initialize()
    again = small(name)
    torch.manual_seed(0)
    again.initialize()
    for (key, a), b in zip(model.named_parameters(), again.parameters(), strict=True):
        assert a.isfinite().all(), key
        assert torch.equal(a, b), key


@pytest.mark.parametrize("name", [name for name in SMALL if not name.startswith("lstm")])
def test_biases_start_at_zero_and_gains_at_one(name: str) -> None:
    model = small(name)
    for part in model.modules():
        if isinstance(getattr(part, "bias", None), Tensor):
            assert not part.bias.any()
        if isinstance(part, nn.LayerNorm | nn.RMSNorm) and "xl-" not in name:
            assert (part.weight == 1).all()


@pytest.mark.parametrize("heads", [{"masked": 0, "next": 2}, {"classify": 5}])
def test_bert_is_cut_at_two_deviations(heads: dict[str, int]) -> None:
    kind = type(small("bert-base-uncased"))
    model = kind(small("bert-base-uncased").config, heads).initialize()
    for name, weight in matrices(model).items():
        assert weight.abs().max() <= 0.04, name
        if weight.numel() > 2000:
            about(weight, 0.02 * 0.87963)  # what the cut leaves of the deviation
            assert weight.abs().max() > 0.038, name


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "gpt3-small"])
def test_gpt(name: str) -> None:
    """From GPT-2 on, what is added to the residual path starts smaller by √(2 · layers)."""
    model = small(name, layers=3)
    for key, weight in matrices(model).items():
        added = key.endswith(("attention.layer.out", "feed_forward.layer.narrow"))
        smaller = added and name != "gpt1"
        about(weight, 0.02 / math.sqrt(6) if smaller else 0.02)


@pytest.mark.parametrize("name", ["gpt2", "xlnet-base", "transformer-xl-wt103-base"])
def test_another_deviation_is_taken(name: str) -> None:
    about(small(name, init_std=0.1).blocks[0].attention.layer.project.weight, 0.1)


@pytest.mark.parametrize("name", ["t5-small", "t5-v1_1-small"])
def test_t5(name: str) -> None:
    """Each matrix keeps its input's variance; the queries carry the scores' missing 1/√size."""
    model = small(name)
    width, size, ffn_size, inner = 64, 12, 192, 4 * 12
    about(model.tokens.weight, 1.0)
    for part in model.modules():
        if isinstance(part, Attention):
            query, key, value = part.project.weight.split(inner)
            about(query, (width * size) ** -0.5)
            about(key, width**-0.5)
            about(value, width**-0.5)
            about(part.out.weight, inner**-0.5)
        elif isinstance(part, FeedForward):
            about(part.wide.weight, width**-0.5)
            about(part.narrow.weight, ffn_size**-0.5)
            if name == "t5-v1_1-small":
                about(part.gate.weight, width**-0.5)
        elif isinstance(part, T5Stack):
            about(part.distances.weight, width**-0.5)


def test_transformer_is_glorot() -> None:
    """Uniform within √(6 / (in + out)), for query, key and value each; embeddings 1/√width."""
    model = small("transformer-base")
    about(model.tokens.weight, 64**-0.5)
    for part in model.modules():
        if isinstance(part, Attention):
            for matrix in (*part.project.weight.chunk(3), part.out.weight):
                bound = math.sqrt(6 / 128)
                about(matrix, bound / math.sqrt(3))
                assert 0.99 * bound < matrix.abs().max() <= bound
        if isinstance(part, FeedForward):
            about(part.wide.weight, math.sqrt(2 / (64 + 192)))


def test_transformer_xl() -> None:
    model = small("transformer-xl-wt103-base", layers=3)
    gains = torch.cat([p for n, p in model.named_parameters() if n.endswith("norm.weight")])
    about(gains, 0.02, mean=1.0)
    for name, parameter in model.named_parameters():
        if "projections" in name:
            about(parameter, 0.01)
        elif "biases" in name or name.endswith(("cluster_bias", "norm.bias")):
            assert not parameter.any()
        elif not name.endswith("norm.weight") and parameter.dim() > 1:
            about(parameter, 0.02)


@pytest.mark.parametrize("name", ["xlnet-base", "longformer-base-4096"])
def test_normal_all_over(name: str) -> None:
    for key, parameter in small(name).named_parameters():
        if parameter.dim() > 1 and parameter.numel() > 100:
            assert abs(parameter.std().item() - 0.02) < 0.004, key


def test_lstm_is_uniform() -> None:
    for parameter in small("lstm-medium").parameters():
        assert 0.045 < parameter.abs().max() <= 0.05


# --- dropout --------------------------------------------------------------------------------

RATES = {"dropout": 0.25, "dropout_attention": 0.375}
# how often each rate acts in one pass of two layers: (on rows, on weights of attention)
PLACES: dict[str, tuple[dict[str, float], Counter[float], Counter[float]]] = {
    # the sum of the embeddings; both sub-layers
    "bert-base-uncased": (RATES, Counter({0.25: 1 + 4}), Counter({0.375: 2})),
    "longformer-base-4096": (RATES, Counter({0.25: 1 + 4}), Counter({0.375: 2})),
    "gpt1": (
        RATES | {"dropout_embedding": 0.5}, Counter({0.5: 1, 0.25: 4}), Counter({0.375: 2}),
    ),
    "gpt2": (
        RATES | {"dropout_embedding": 0.5}, Counter({0.5: 1, 0.25: 4}), Counter({0.375: 2}),
    ),
    # both embeddings; two sub-layers of an encoder's layer, three of a decoder's; nothing else
    "transformer-base": ({"dropout": 0.25}, Counter({0.25: 2 + 4 + 6}), Counter()),
    # later settings also drop weights and inside the network
    "transformer-base, later": (
        RATES | {"dropout_hidden": 0.5}, Counter({0.25: 12, 0.5: 4}), Counter({0.375: 6}),
    ),
    # each stack's embedding and end; sub-layers; inside every network
    "t5-small": (
        {"dropout": 0.25}, Counter({0.25: 2 * 2 + 4 + 6 + 4}), Counter({0.25: 6}),
    ),
    # embedding, sinusoids, end; sub-layers and inside every network
    "transformer-xl-wt103-base": (RATES, Counter({0.25: 3 + 3 * 2}), Counter({0.375: 2})),
    "xlnet-base": ({"dropout": 0.25}, Counter({0.25: 3 + 3 * 2}), Counter({0.25: 2})),
    # embedding, and after every layer
    "lstm-medium": ({"dropout": 0.25}, Counter({0.25: 1 + 2}), Counter()),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_dropout_acts_where_the_paper_says(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, rows, weights = PLACES[case]
    model = small(case.partition(",")[0], **changes).train()
    acted: Counter[float] = Counter()
    seen: Counter[float] = Counter()

    def watch(*args: Any) -> Tensor:
        rate = args[-1].rate
        seen.update([rate] if rate else [])
        return unseen(*args)

    for part in model.modules():
        if isinstance(part, Dropout) and part.rate:
            part.register_forward_hook(lambda module, *_: acted.update([module.rate]))
        if isinstance(part, Attention):
            part.kernel = watch
    run(model)
    assert (acted, seen) == (rows, weights)
    model.eval()
    acted.clear()
    seen.clear()
    assert torch.equal(run(model), run(model))
    assert not seen


def test_published_rates() -> None:
    rates = {
        name: (c.dropout, getattr(c, "dropout_attention", None)) for name, c in sizes().items()
    }
    assert rates["transformer-base"] == (0.1, 0.0)
    assert rates["transformer-big"] == (0.3, 0.0)
    assert rates["bert-large-cased"] == rates["gpt1"] == rates["gpt2-xl"] == (0.1, 0.1)
    assert rates["transformer-xl-wt103-base"] == (0.1, 0.0)
    assert rates["transformer-xl-wt103-large"] == (0.2, 0.2)
    assert rates["transformer-xl-enwik8-large"] == (0.15, 0.15)
    assert rates["transformer-xl-lm1b-base"] == (0.0, 0.0)
    assert rates["transformer-xl-lm1b-large"] == (0.05, 0.05)
    assert rates["t5-11b"] == (0.1, None)


# --- norms and activations ------------------------------------------------------------------


def norms(model: Model, kind: type[nn.Module] = nn.LayerNorm) -> int:
    return sum(isinstance(part, kind) for part in model.modules())


def test_how_many_norms() -> None:
    """Two a layer (three in a decoder), and what each paper adds."""
    wanted = {"gpt1": 4, "gpt2": 5, "gpt3-small": 5, "bert-base-uncased": 4 + 1 + 1,
              "transformer-base": 10, "transformer-xl-wt103-base": 4, "xlnet-base": 4,
              "longformer-base-4096": 6, "t5-small": 0}  # fmt: skip
    assert {name: norms(small(name)) for name in wanted} == wanted
    assert norms(small("transformer-base", norm="pre")) == 12
    assert norms(small("t5-small"), nn.RMSNorm) == 12


@pytest.mark.parametrize(
    ("name", "place"),
    [("gpt1", PostNorm), ("gpt2", PreNorm), ("bert-base-uncased", PostNorm), ("t5-small", PreNorm),
     ("transformer-base", PostNorm), ("xlnet-base", PostNorm), ("gpt3-small", PreNorm),
     ("transformer-xl-wt103-base", PostNorm), ("longformer-base-4096", PostNorm),
     ("longformer-characters-small", PreNorm)],
)  # fmt: skip
def test_where_the_norms_stand(name: str, place: type[PostNorm]) -> None:
    """With every sub-layer silent, pre-norm leaves the residual path alone; post-norm does not."""
    model = small(name).eval()
    norms = [part for part in model.modules() if isinstance(part, PostNorm)]
    assert norms and all(type(part) is place for part in norms)
    x = torch.randn(2, 5, 64)
    for part in norms:
        silent = type(part)(lambda x: torch.zeros_like(x), part.norm, 0.0)
        assert torch.equal(silent(x), x if place is PreNorm else part.norm(x))


def test_gpt1_ends_without_a_norm_and_gpt2_with_one() -> None:
    assert isinstance(small("gpt1").norm, nn.Identity)
    model = small("gpt2").eval()
    with torch.no_grad():
        model.norm.weight.zero_()
        model.norm.bias.fill_(3.0)
        assert (run(model) == 3.0).all()


def test_epsilons() -> None:
    known = {
        name: config.norm_eps for name, config in sizes().items() if hasattr(config, "norm_eps")
    }
    for name, epsilon in known.items():
        millionth = "t5" in name or name.startswith("llama-")
        wanted = 1e-12 if name.startswith(("bert", "xlnet")) else 1e-6 if millionth else 1e-5
        assert epsilon == wanted, name
        if name in SMALL:
            kinds = nn.LayerNorm | nn.RMSNorm
            assert {p.eps for p in small(name).modules() if isinstance(p, kinds)} == {wanted}


def test_activations() -> None:
    for name, config in sizes().items():
        if not hasattr(config, "activation"):
            continue
        wanted = {"t5-v1": "gelu_tanh", "t5": "relu", "gpt": "gelu_tanh", "transformer": "relu",
                  "llama": "silu", "tinyllama": "silu", "smollm": "silu"}  # fmt: skip
        start = next((s for s in wanted if name.startswith(s)), "")
        assert config.activation == wanted.get(start, "gelu"), name
    one = torch.ones((), dtype=torch.float64)
    assert abs(float(ACTIVATIONS["gelu"](one)) - 0.841344746) < 1e-9
    assert abs(float(ACTIVATIONS["gelu_tanh"](one)) - 0.841191991) < 1e-9
    x = torch.linspace(-5, 5, 100_001, dtype=torch.float64)
    apart = (ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_tanh"](x)).abs()
    assert abs(float(apart.max()) - 4.73e-4) < 1e-6
    assert abs(abs(float(x[apart.argmax()])) - 2.70) < 0.01


# --- ties, scales, bands --------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in SMALL if "-xl-" not in n and n != "t5-v1_1-small"])
def test_the_output_is_the_embedding(name: str) -> None:
    model = small(name)
    tables = [m.weight for m in model.modules()
              if isinstance(m, nn.Embedding) and m.num_embeddings == VOCABULARY]  # fmt: skip
    assert len(tables) == 1
    assert model.output.weight is tables[0]


def test_what_is_not_tied() -> None:
    version = small("t5-v1_1-small")
    assert version.output.weight is not version.tokens.weight
    model = small("transformer-xl-wt103-base")
    tables, output = model.tokens, model.output
    assert output.tables is tables.tables
    shared = [a is b for a, b in zip(output.projections, tables.projections, strict=True)]
    assert shared == [False, True, True]


def test_scales() -> None:
    """1/√size but in T5, which has neither scale nor bias; v1.0 divides before its output."""
    for name in SMALL:
        for part in small(name).modules():
            if isinstance(part, Attention):
                size = part.project.size
                assert part.scale == (1.0 if name.startswith("t5") else size**-0.5)
    assert not any(key.endswith("bias") for key, _ in small("t5-small").named_parameters())
    assert small("t5-small").output.scale == 64**-0.5
    assert small("t5-v1_1-small").output.scale == 1.0
    biased = [
        key for key, _ in small("transformer-base").named_parameters() if key.endswith("bias")
    ]
    assert biased and not any(".project." in key or ".out." in key for key in biased)


@torch.no_grad()
def test_gpt3_alternates_dense_and_banded_layers() -> None:
    """The first layer sees the whole past, the second the last four rows, and so on in turn."""
    model = small("gpt3-small", layers=4).eval()
    with record(model) as seen:
        run(model, 12)
    row, key = torch.arange(12)[:, None], torch.arange(12)[None]
    dense, band = key <= row, (key <= row) & (key > row - 4)
    for i, layer in enumerate(seen):
        assert torch.equal(layer.weights[0, 0] > 0, dense if i % 2 == 0 else band), i
    assert all(config.band == 128 for name, config in sizes().items() if name.startswith("gpt3"))
    assert small("gpt2").config.band is None


@torch.no_grad()
def test_a_band_reaches_as_far_as_its_layers() -> None:
    """By itself the banded layer tells row 11 of rows 8 to 11; the dense one before it of all."""
    model = small("gpt3-small", layers=2).eval()
    tokens = torch.arange(12)[None]
    changed = tokens.clone()
    changed[0, 2] = 100
    assert not torch.equal(model(tokens)[0, 11], model(changed)[0, 11])
    first = model.blocks[0].attention
    for parameter in first.layer.out.parameters():
        parameter.zero_()
    assert torch.equal(model(tokens)[0, 6:], model(changed)[0, 6:])
    assert not torch.equal(model(tokens)[0, 5], model(changed)[0, 5])


@torch.no_grad()
def test_only_whether_two_segments_are_the_same_counts_for_xlnet() -> None:
    """Other numbers for the same segments change BERT, which adds an embedding of each."""
    segments = torch.tensor([[0, 0, 0, 1, 1, 0]])
    tokens, renamed, others = torch.arange(6)[None], 1 - segments, torch.zeros_like(segments)
    for name, knows in (("xlnet-base", False), ("bert-base-uncased", True)):
        model = small(name).eval()
        before, after, flat = (model(tokens, segments=s) for s in (segments, renamed, others))
        assert torch.equal(before, after) != knows
        assert not torch.allclose(before, flat)
    shapes = [p.shape for n, p in small("xlnet-base").named_parameters() if "segment" in n]
    assert shapes == [(2, 4, 16)] * 2  # same or not, heads, width of a head: in each layer


def test_t5_starts_its_queries_smaller_instead_of_dividing() -> None:
    t5, other = small("t5-small", width=256), small("bert-base-uncased")
    attentions = [part for part in t5.modules() if isinstance(part, Attention)]
    assert attentions and all(part.scale == 1.0 for part in attentions)
    assert all(p.scale == 16**-0.5 for p in other.modules() if isinstance(p, Attention))
    for part in attentions:
        query, key, _ = part.project.weight.detach().chunk(3)
        ratio = float(query.std() / key.std())
        assert ratio == pytest.approx(part.project.size**-0.5, rel=0.05)


@pytest.mark.parametrize("words", [300, 3000])
def test_embeddings_start_at_one_over_the_root_of_the_width_for_any_vocabulary(words: int) -> None:
    """Xavier's √(2 / (words + width)) would depend on the vocabulary."""
    weight = small("transformer-base", vocab_size=words).tokens.weight
    about(weight, 64**-0.5)
    assert abs(float(weight.detach().std()) - math.sqrt(2 / (words + 64))) > 0.03
