"""Looking into models: probes, attention on one sentence, and what longer texts cost."""

import numpy as np
import pytest
import torch

from regard.api import LoadedModel, load
from regard.attention.recorder import record
from regard.data.corpus import Corpus
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.lab.compare.costs import fresh, held_at_once, passed, reading
from regard.lab.compare.insight import attended, labels_of, probed, sentence_of
from regard.lab.compare.measures import MeasureSizes, beginnings, samples
from regard.models import create
from tests.training import small

SHAPE = {"layers": 2, "width": 16, "heads": 2, "ffn_size": 32, "vocab_size": 40, "context": 32}


def model(name, where, **changes) -> LoadedModel:
    torch.manual_seed(1)
    known = {"layers": 1, "width": 16, "vocab_size": 40} if name == "lstm" else SHAPE
    known = {k: v for k, v in (known | changes).items() if v is not None}
    return LoadedModel(create(name, **known).eval(), Tokenizer.open(where), path=where)


def test_the_sentence_is_the_same_for_all(where):
    corpus = Corpus.open(where, "train")
    text = sentence_of(corpus, 29, 0)
    assert text == sentence_of(corpus, 29, 0) and text
    short = sentence_of(corpus, 3, 0)  # none is that short: a beginning
    assert short and len(short.split()) <= 3


def test_attention_is_the_mean_of_the_recorded_heads(where):
    loaded = model("gpt", where)
    text = "w8 w9 w10 w11"
    found = attended(loaded, text)
    ids = loaded.tokenizer.encode(text)
    with torch.no_grad(), record(loaded.model) as seen:
        loaded.model(torch.tensor([ids]))
    assert found is not None and found["tokens"] == text.split()
    for layer, recorded in zip(found["layers"], seen, strict=True):
        assert np.allclose(layer["weights"], recorded.weights[0].mean(0), atol=6e-5)
    bert = attended(model("bert", where), text)
    assert bert is not None and bert["tokens"][0] == "w4" and bert["tokens"][-1] == "w5"
    assert attended(model("lstm", where), text) is None
    assert attended(loaded, None) is None


def test_a_text_that_sets_no_task_has_no_probe(where):
    loaded = model("gpt", where)
    found = probed(loaded, where, "train", 60, 0)
    assert found == {}  # these words have no punctuation to ask for


def test_probes_have_an_interval_and_an_untrained_model_beside_them(tmp_path):
    from regard.data.prepare import PreparePlan, prepare

    words = ["cat", "dog", "tree", "Anna", "sun", "river", "7", "of", "the", "and"]
    dice = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        own = [words[i] for i in dice.integers(0, len(words), 9)]
        lines.append(f"{' '.join(own[:4])}, {' '.join(own[4:])}.")
    (tmp_path / "text.txt").write_text("\n\n".join(lines))
    prepare(PreparePlan((str(tmp_path / "text.txt"),), tmp_path / "data", vocab_size=380))
    loaded = model("gpt", tmp_path / "data", vocab_size=400, context=64)
    found = probed(loaded, tmp_path / "data", "train", 80, 0)
    low, high = found["probe_accuracy_interval"]
    assert 0 <= low <= found["probe_accuracy"] <= high <= 1
    assert [row["task"] for row in found["probe_tasks"]] == ["punctuation-next", "previous-word"]
    mean = np.mean([row["untrained"] for row in found["probe_tasks"]])
    assert found["probe_untrained"] == pytest.approx(mean)
    assert probed(loaded, tmp_path / "data", "train", 80, 0) == found


def test_a_beginning_ends_with_a_whole_character(tmp_path):
    from regard.data.prepare import PreparePlan, prepare

    dice = np.random.default_rng(0)
    lines = ["".join(chr(0x4E00 + i) for i in dice.integers(0, 5000, 20)) for _ in range(60)]
    (tmp_path / "text.txt").write_text("。\n\n".join(lines), encoding="utf-8")
    prepare(PreparePlan((str(tmp_path / "text.txt"),), tmp_path / "data", vocab_size=380))
    found = beginnings(Corpus.open(tmp_path / "data", "train"), count=8)
    assert len(found) == 8 and not any("\ufffd" in text for text in found)


def test_a_prompt_that_is_too_long_for_a_model_is_passed_over(where):
    recipe = small.recipe("gpt", where, objective={"name": "causal"})
    extent = MeasureSizes(prompts=(" ".join(["w8"] * 40), "w8 w9"), tokens=2)
    found = samples(model("gpt", where), Corpus.open(where, "test"), recipe, extent)
    assert [each["given"] for each in found] == ["w8 w9"]


def test_an_xlnet_writes_only_if_it_has_learned_to_ask(where):
    """It asks for the next word by rows that no other objective teaches."""
    loaded, corpus = model("xlnet", where, context=None), Corpus.open(where, "test")
    extent = MeasureSizes(prompts=("w8 w9",), tokens=2)
    for name, count in (("permuted", 1), ("causal", 0), ("prefix", 0)):
        recipe = small.recipe("xlnet", where, objective={"name": name})
        assert len(samples(loaded, corpus, recipe, extent)) == count


class Bytes:
    """A token is a byte."""

    def decode(self, ids: list[int], special: bool = False) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def test_pieces_of_a_character_are_named_after_it():
    text = "a月🌙"
    assert labels_of(Bytes(), list(text.encode())) == "a 月₁ 月₂ 月₃ 🌙₁ 🌙₂ 🌙₃ 🌙₄".split()
    cut = list("a月".encode())[:-1]  # never whole
    assert labels_of(Bytes(), cut) == ["a", "\ufffd", "\ufffd"]


# -- costs


def test_memory_is_what_is_held_at_once():
    def work():
        a = torch.ones(1000)
        a = a + 1  # both for a moment
        return torch.ones(500) + a[:500]

    assert 8000 <= held_at_once(work) <= 8200


@pytest.mark.parametrize("name", ["gpt", "t5", "lstm", "longformer", "xlnet"])
def test_a_fresh_model_of_the_same_shape_reads_longer_texts(name, tmp_path):
    shape = dict(small.SHAPES.get(name, small.PLAIN)) | {"vocab_size": 40}
    given = create(name, **shape)
    save(given, tmp_path / "model")
    made = fresh(load(tmp_path / "model").model, 256)
    count = given.parameter_count()
    more = 256 * 16 if hasattr(given.config, "context") else 0  # positions
    assert count <= made.parameter_count() <= count + more
    short, long = passed(made, 32), passed(made, 256)
    assert short["seconds"] > 0 and long["bytes"] > 2 * short["bytes"]
    with torch.inference_mode():
        assert reading(made, 64)().shape[1] == (32 if name == "t5" else 64)
