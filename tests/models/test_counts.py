"""Published sizes have exactly the published number of parameters; nothing is allocated for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.models import FAMILIES, count_parameters, create, family_of, sizes
from regard.models.base import Model
from regard.models.transformer import Transformer, TransformerConfig

# BertModel with pooler, BertForPreTraining, BertForMaskedLM without pooler
BERT = {
    "bert-base-uncased": (109_482_240, 110_106_428, 109_514_298),
    "bert-base-cased": (108_310_272, 108_932_934, 108_340_804),
    "bert-large-uncased": (335_141_888, 336_226_108, 335_174_458),
    "bert-large-cased": (333_579_264, 334_661_958, 333_610_308),
    "bert-base-chinese": (102_267_648, 102_882_442, 102_290_312),
    "bert-base-multilingual-cased": (177_853_440, 178_566_653, 177_974_523),
    "bert-tiny": (4_385_920, 4_433_468, 4_416_698),
    "bert-mini": (11_170_560, 11_267_900, 11_201_594),
    "bert-small": (28_763_648, 29_058_876, 28_795_194),
    "bert-medium": (41_373_184, 41_668_412, 41_404_730),
}
# the encoder alone, and with the bias of its output
XLNET = {
    "xlnet-base": (116_718_336, 116_750_336),
    "xlnet-large": (360_268_800, 360_300_800),
}
# the encoder with its pooler, and the masked language model
LONGFORMER = {
    "longformer-base-4096": (148_659_456, 148_711_257),
    "longformer-large-4096": (434_600_960, 434_653_273),
}
COUNTS = {
    "transformer-base": 63_045_632,
    "transformer-big": 214_171_648,
    "gpt1": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-small": 125_226_240,
    "gpt3-medium": 355_871_744,
    "gpt3-large": 760_300_032,
    "gpt3-xl": 1_315_723_264,
    "gpt3-2.7b": 2_651_553_280,
    "gpt3-6.7b": 6_658_404_352,
    "gpt3-13b": 12_853_386_240,
    "gpt3-175b": 174_604_259_328,
    "transformer-xl-wt103-base": 151_107_538,
    "transformer-xl-wt103-large": 285_205_322,
    "transformer-xl-enwik8-base": 41_055_436,
    "transformer-xl-enwik8-large": 277_231_820,
    "transformer-xl-text8-large": 277_050_395,
    "transformer-xl-lm1b-base": 357_812_082,
    "transformer-xl-lm1b-large": 841_354_862,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "t5-v1_1-xl": 2_849_757_184,
    "t5-v1_1-xxl": 11_135_332_352,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.2-1b": 1_235_814_400,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    **{name: counts[1] for name, counts in BERT.items()},
    **{name: counts[1] for name, counts in XLNET.items()},
    **{name: counts[1] for name, counts in LONGFORMER.items()},
}
UNPUBLISHED = {  # sizes whose papers print no exact count, or none that can be checked
    "longformer-characters-small",
    "longformer-characters-large",
    "lstm-medium",
    "lstm-large",
}


def empty(name: str, heads: dict[str, int] | None = None, **changes: Any) -> Model:
    card = family_of(name)
    kind, known = card.model, card.sizes
    with torch.device("meta"):
        config = known[name].replace(**changes)
        return kind(config) if heads is None else kind(config, heads)


def test_every_size_is_counted() -> None:
    assert set(sizes()) == set(COUNTS) | UNPUBLISHED


@pytest.mark.parametrize("name", COUNTS)
def test_published(name: str) -> None:
    assert count_parameters(name) == COUNTS[name]


@pytest.mark.parametrize("name", BERT)
def test_bert_with_and_without_heads(name: str) -> None:
    kinds: list[dict[str, int]] = [{"pool": 0}, {"masked": 0, "next": 2}, {"masked": 0}]
    assert tuple(empty(name, heads).parameter_count() for heads in kinds) == BERT[name]


@pytest.mark.parametrize("name", XLNET)
def test_xlnet_with_and_without_its_output(name: str) -> None:
    kinds: list[dict[str, int]] = [{}, {"masked": 0}]
    assert tuple(empty(name, heads).parameter_count() for heads in kinds) == XLNET[name]


@pytest.mark.parametrize("name", LONGFORMER)
def test_longformer_with_pooler_and_with_output(name: str) -> None:
    kinds: list[dict[str, int]] = [{"pool": 0}, {"masked": 0}]
    assert tuple(empty(name, heads).parameter_count() for heads in kinds) == LONGFORMER[name]


@pytest.mark.parametrize(
    ("name", "count"), [("transformer-base", 63_082_496), ("transformer-big", 214_245_376)]
)
def test_transformer_with_biases_in_its_attention(name: str, count: int) -> None:
    assert empty(name, bias=True).parameter_count() == count


def test_a_norm_that_comes_first_needs_one_more_a_stack() -> None:
    extra = empty("transformer-base", norm="pre").parameter_count()
    assert extra == COUNTS["transformer-base"] + 2 * 2 * 512


def test_marian_from_english_to_german() -> None:
    """The bias of its logits is given and not trained, so it is not counted."""
    with torch.device("meta"):
        model = Transformer(TransformerConfig(58101, bias=True, activation="silu"))
    assert model.parameter_count() == 73_886_208
    assert sum(p.numel() for p in model.parameters()) == 73_886_208


def test_a_layer_of_each() -> None:
    """Layers as the papers' formulas have them: one more adds exactly that."""

    def layer(name: str, **changes: Any) -> int:
        count = [empty(name, layers=n, **changes).parameter_count() for n in (2, 3)]
        return count[1] - count[0]

    assert layer("bert-base-uncased") == 7_087_872
    assert layer("bert-large-uncased") == 12_596_224
    assert layer("gpt2") == 12 * 768**2 + 13 * 768
    assert layer("transformer-base") == 3_150_336 + 4_199_936
    assert layer("transformer-big") == 12_592_128 + 16_788_480
    width, ffn_size = 410, 2100
    wanted = 5 * width * 410 + 2 * width * ffn_size + ffn_size + width + 4 * width
    assert layer("transformer-xl-wt103-base") == wanted


def test_sizes_without_an_exact_figure() -> None:
    """The character models are printed as 41M and 102M; the LSTM follows from its own formula."""
    assert round(count_parameters("longformer-characters-small") / 1e6) == 41
    assert round(count_parameters("longformer-characters-large") / 1e6) in (102, 103)
    for name, width in (("lstm-medium", 650), ("lstm-large", 1500)):
        wanted = 10_000 * width + 10_000 + 2 * (8 * width**2 + 8 * width)
        assert count_parameters(name) == wanted


def test_nothing_is_allocated() -> None:
    model = empty("gpt3-175b")
    assert {p.device.type for p in model.parameters()} == {"meta"}


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_are_those_of_the_tensors(family: str) -> None:
    """A tied table is one tensor, counted once."""
    name = next(iter(FAMILIES[family].sizes))
    with torch.device("meta"):
        model = create(name, initialize=False)
    shared = {id(p): p.numel() for p in model.parameters()}
    assert sum(shared.values()) == model.parameter_count()
