"""Words of a masked model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.api import LoadedModel, load
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.augment.examples import AugmentSettings
from regard.data.augment.words import split
from regard.data.examples import LabeledExample, TaggedExample
from regard.decoding import fill
from regard.methods.augment.masked import MaskedAugmenter
from regard.methods.augment.processes import build
from regard.models.longformer import Longformer
from tests.decoding.small import tokenizer
from tests.laws.zoo import LONG, Specimen, everything
from tests.methods.augment.small import translator
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import World

TEXT = "the warm film was very dull"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return sharpened(load(tuning.bert(tmp_path_factory.mktemp("model") / "bert")))


def sharpened(loaded: LoadedModel) -> LoadedModel:
    """With weights so large that guesses differ."""
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if "norm" not in name:
                parameter.mul_(8.0)
    return loaded


def test_candidates_are_those_of_fill(bert: LoadedModel) -> None:
    """The model's own words for a blank, without marks and the like."""
    augmenter = MaskedAugmenter(bert, top=12)
    words, chances = augmenter.candidates(split(TEXT), [1])[0]
    blank = fill(bert, "the [MASK] film was very dull", top_k=12)[0].blanks[0]
    plain = [c for c in blank if c.text.isalpha()]
    assert words == [c.text for c in plain] and len(words) > 3
    assert chances == pytest.approx([c.probability for c in plain], rel=1e-4)


def test_some_words_are_replaced(bert: LoadedModel) -> None:
    augmenter = MaskedAugmenter(bert, top=10)
    seen = set()
    for seed in range(12):
        new = augmenter(split(TEXT), 0.4, np.random.default_rng(seed))
        changed = [i for i, word in enumerate(new.words) if word != TEXT.split()[i]]
        assert len(new.words) == 6 and len(changed) == 2  # int(0.4 * 6), never itself again
        assert not {0, 3, 4} & set(changed)  # stop words
        assert all(word.isalpha() for word in new.words)
        seen.add(str(new))
    assert len(seen) > 4
    again = augmenter(split(TEXT), 0.4, np.random.default_rng(3))
    assert again == augmenter(split(TEXT), 0.4, np.random.default_rng(3))


def test_the_likely_are_drawn_more_often(bert: LoadedModel) -> None:
    augmenter = MaskedAugmenter(bert, top=6)
    text = split("the film")
    words, chances = augmenter.candidates(text, [1])[0]
    others = [i for i, word in enumerate(words) if word != "film"]
    wanted = chances[others] / chances[others].sum()
    drawn = [augmenter(text, 0.1, np.random.default_rng(s)).words[1] for s in range(150)]
    share = drawn.count(words[others[0]]) / 150
    assert share == pytest.approx(wanted[0], abs=0.12)


def test_tinybert_reads_the_text_twice(bert: LoadedModel) -> None:
    augmenter = MaskedAugmenter(bert, rule="tinybert")
    row: Any = augmenter.rows(split("the warm film"), [1])[0]
    words = [tuning.WORDS[i] for i in row.ids]
    assert words == "[CLS] the [MASK] film [SEP] the warm film [SEP]".split()
    assert row.segments == [0] * 5 + [1] * 4 and row.place == 2
    tokens, segments = torch.tensor([row.ids]), torch.tensor([row.segments])
    with torch.inference_mode():
        bert.model.eval()
        best = bert.model.logits(bert.model(tokens, None, segments)[0, 2]).topk(15).indices
    wanted = [tuning.WORDS[i] for i in best.tolist() if tuning.WORDS[i].isalpha()]
    assert augmenter.candidates(split("the warm film"), [1])[0].words == wanted


def test_tinybert_replaces_two_fifths(bert: LoadedModel) -> None:
    augmenter = MaskedAugmenter(bert, rule="tinybert")
    text = split("warm film dull plot " * 3)
    assert augmenter.candidates(text, [0])[0].words  # it may also be itself
    same = changed = 0
    for seed in range(20):
        new = augmenter(text, 0.1, np.random.default_rng(seed))
        different = sum(a != b for a, b in zip(new.words, text.words, strict=True))
        changed, same = changed + different, same + len(text.words) - different
    assert 0.2 < changed / (same + changed) <= 0.5


def test_a_long_text_is_read_around_the_word(bert: LoadedModel) -> None:
    text = split("the film was dull and " * 20)  # 100 words, and the model reads 32
    augmenter = MaskedAugmenter(bert, top=5)
    rows: Any = augmenter.rows(text, range(len(text.units)))
    assert {len(row.ids) for row in rows} == {32}
    assert all(row.ids[row.place] == tuning.WORDS.index("[MASK]") for row in rows)
    new = augmenter(text, 0.3, np.random.default_rng(0))
    assert len(new.words) == 100 and new.words != text.words


def test_it_is_one_of_the_methods(tmp_path: Path) -> None:
    sharpened(load(tuning.bert(tmp_path / "a"))).save(tmp_path / "bert")
    settings = AugmentSettings(
        ("masked",), masked=str(tmp_path / "bert"), copies=3, word_fraction=0.2
    )
    examples = [LabeledExample(TEXT, label="bad"), LabeledExample("Film", label="good")]
    first, second = build(settings).variants(examples)
    assert all(v.example.label == "bad" and v.example.text != TEXT for v in first)
    assert all(v.example.text[0].isupper() for v in second)
    example = TaggedExample(("warm", "film", "."), ("O", "B-X", "O"))
    tagged = build(AugmentSettings(("masked",), masked=str(tmp_path / "bert"), scheme="bio"))
    for variant in tagged.variants([example])[0]:
        changed: Any = variant.example
        assert changed.words[1:] == ("film", ".") and changed.tags == example.tags


def test_other_masked_models(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("longformer", "xlnet"):
        augmenter = MaskedAugmenter(sharpened(load(world.model(name))), top=10)
        new = augmenter(split(TEXT), 0.2, np.random.default_rng(1))
        assert sum(a != b for a, b in zip(new.words, TEXT.split(), strict=True)) == 1
        with refuses(ConfigError, "TinyBERT", "'some'"):
            MaskedAugmenter(load(world.model(name)), rule="tinybert")


def test_what_is_refused(bert: LoadedModel, tmp_path: Path) -> None:
    with refuses(InputError, "T5", "bert, longformer, xlnet"):
        MaskedAugmenter(load(translator(tmp_path / "t5", "t5", 1)))
    with refuses(InputError, "GPT", "bert"):
        MaskedAugmenter(load(tuning.model(tmp_path / "gpt", "gpt")))
    with refuses(UnknownName, "rule 'tinyber'"):
        MaskedAugmenter(bert, rule="tinyber")
    with refuses(ConfigError, "top is 0"):
        MaskedAugmenter(bert, top=0)


def test_white_space_is_no_candidate() -> None:
    """A byte-level tokenizer spells a line break Ċ, which looks like a letter."""
    words = tokenizer("bytes-bpe")
    config = LONG.replace(vocab_size=len(words))
    loaded = LoadedModel(Specimen("longformer", Longformer, config, everything).fresh(), words)
    augmenter = MaskedAugmenter(loaded, top=len(words))
    guesses, chances = augmenter.candidates(split("the cat sat"), [1])[0]
    assert "cat" in guesses and not set("ĊĠĉč") & set("".join(guesses))
    assert (chances > 0).all()
