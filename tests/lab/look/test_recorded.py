"""What a page is made of is what the model did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.api import LoadedModel
from regard.cli.main import main
from regard.core.errors import ConfigError, InputError
from regard.data.special_tokens import special_of
from regard.lab.look import look, packing
from regard.lab.look.recorded import LookSide
from regard.lab.look.rollout import Rollout
from regard.lab.look.tokens import tokens_of
from regard.lab.look.weights import KeyBand
from regard.models.state import State
from tests.decoding.small import draw
from tests.lab.look.small import CONFIGS, informed, recorded, speaking
from tests.laws.zoo import VOCABULARY, ZOO, Specimen
from tests.refusals import refuses

SENTENCE = "The cat sat on the mat."
CLOSE = 2e-6
PLAIN = [
    one for one in ZOO
    if one.name in ("gpt1", "gpt3", "transformer-xl", "transformer-xl-same", "xlnet", "bert",
                    "characters", "longformer")
]  # fmt: skip


def specimen(name: str) -> Specimen:
    return next(one for one in ZOO if one.name == name)


def naive_rollout(means: list[np.ndarray]) -> np.ndarray:
    rollout = np.eye(len(means[0]))
    for mean in means:
        step = 0.5 * mean.astype(np.float64) + 0.5 * np.eye(len(mean))
        rollout = step / step.sum(1, keepdims=True) @ rollout
    return rollout


def heads_of(side: LookSide, kind: str) -> list[np.ndarray]:
    return [
        np.stack([layer.weights(h) for h in range(len(layer.heads))])
        for layer in side.stack(kind).layers
    ]


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_the_weights_are_those_of_record(kind: Specimen) -> None:
    """Of every family that reads one text; windows in their bands, split layers joined."""
    model, ids = kind.fresh(), draw(60, 3, VOCABULARY)
    side = look(LoadedModel(model), ids).sides[0]
    inputs: dict[str, Any] = {}
    if kind.name == "longformer":
        inputs["global_tokens"] = torch.zeros(1, 60, dtype=torch.bool)
        inputs["global_tokens"][0, 0] = True
    plain = recorded(model, torch.tensor([ids]), **inputs)
    heads = heads_of(side, "self")
    if kind.name == "characters":  # two attentions a layer
        plain = [np.concatenate(pair) for pair in zip(plain[::2], plain[1::2], strict=True)]
    if kind.name == "longformer":  # the global row sees everything
        local, wide = plain[::2], plain[1::2]
        for weights, far in zip(local, wide, strict=True):
            weights[:, 0] = far[:, 0]
        plain = local
    assert len(heads) == len(plain) == model.config.layers
    for own, expected, layer in zip(heads, plain, side.stack("self").layers, strict=True):
        assert own.shape == expected.shape
        np.testing.assert_allclose(own, expected, atol=CLOSE)
        np.testing.assert_allclose(layer.average, expected.mean(0), atol=CLOSE)
    rolled = side.stack("self").layers[-1].rollout
    expected = naive_rollout([weights.mean(0) for weights in plain])
    np.testing.assert_allclose(rolled, expected, atol=CLOSE)
    np.testing.assert_allclose(expected.sum(1), 1.0)


def test_a_window_is_kept_as_a_band() -> None:
    """And global tokens, wherever they stand, see and are seen by all."""
    loaded = speaking("longformer", layers=2)
    ids = draw(200, 1)
    side = look(loaded, ids, global_tokens=[3, 90]).sides[0]
    packed = side.stack("self").layers[1].heads[0]
    assert packed.band == KeyBand(4, 4, 1, (2, 89)) and packed.whole_rows == (2, 89)
    assert len(packed.data) == 4 * 200 * 11
    weights = packed.unpack()
    assert (weights[2] > 0).all() and (weights[:, 89] > 0).all()
    assert weights[100, 104] > 0 and weights[100, 105] == 0
    np.testing.assert_allclose(weights.sum(1), 1.0, atol=1e-5)
    marks = [i for i, token in enumerate(side.tokens["text"]) if "global" in token.marks]
    assert marks == [2, 89]


@pytest.mark.parametrize("family", ["bert", "longformer", "xlnet"])
def test_an_encoder_reads_between_its_marks(family: str) -> None:
    """As it has learned to, also where the tokenizer adds none; [CLS] is a Longformer's global."""
    loaded = speaking(family)
    words: Any = loaded.tokenizer
    ids, special = words.encode(SENTENCE, special=False), special_of(words, "small")
    after = [special.sep, special.cls] if family == "xlnet" else [special.sep]
    row = [*ids, *after] if family == "xlnet" else [special.cls, *ids, *after]
    tokens = look(loaded, SENTENCE).sides[0].tokens["text"]
    assert [t.text for t in tokens] == [t.text for t in tokens_of(words, row)]
    marked = [i for i, t in enumerate(tokens) if "global" in t.marks]
    assert marked == ([0] if family == "longformer" else [])


def test_memory_rows_stand_before_the_text() -> None:
    loaded = speaking("transformer-xl")
    before, text = "Emoji are long: the dog did not.", "The cat sat."
    side = look(loaded, text, memory=before).sides[0]
    words: Any = loaded.tokenizer
    past, ids = (words.encode(t, special=False) for t in (before, text))
    assert len(past) > 6  # more than it remembers
    state = State()
    with torch.no_grad():
        for start in range(0, len(past), 6):
            loaded.model(torch.tensor([past[start : start + 6]]), state=state)
    expected = recorded(loaded.model, torch.tensor([ids]), state=state)
    for own, weights in zip(heads_of(side, "self"), expected, strict=True):
        assert own.shape == (2, len(ids), 6 + len(ids))
        np.testing.assert_allclose(own, weights, atol=CLOSE)
    columns = side.tokens["keys"]
    assert [("memory" in t.marks) for t in columns] == [True] * 6 + [False] * len(ids)
    assert [t.text for t in columns[:6]] == [t.text for t in tokens_of(words, past[-6:])]
    assert [t.place for t in columns[4:8]] == [-2, -1, 1, 2]
    square = []
    for weights in expected:  # a remembered row stands for itself
        mean = np.eye(6 + len(ids))
        mean[6:] = weights.mean(0)
        square.append(mean)
    rolled = side.stack("self").layers[-1].rollout
    np.testing.assert_allclose(rolled, naive_rollout(square)[6:], atol=CLOSE)


def test_memory_columns_are_the_rows_that_are_remembered() -> None:
    """An XLNet that is trained with a memory keeps the first rows of a piece, not the last."""
    loaded = speaking("xlnet", mem_len=6, reuse_len=4)
    model: Any = loaded.model
    before, ids = draw(11, 4), draw(5, 2)
    side = look(loaded, ids, memory=before).sides[0]
    state = State()
    with torch.no_grad():
        for start in range(0, 11, 4):
            model(torch.tensor([before[start : start + 4]]), state=state)
        assert torch.equal(state.hidden[0][0], model.tokens(torch.tensor(before[-6:])))
    expected = recorded(model, torch.tensor([ids]), state=state)
    for own, weights in zip(heads_of(side, "self"), expected, strict=True):
        np.testing.assert_allclose(own, weights, atol=CLOSE)
    past = [t.text for t in side.tokens["keys"] if "memory" in t.marks]
    assert past == [t.text for t in tokens_of(loaded.tokenizer, before[-6:])]


def test_both_streams_under_an_order() -> None:
    loaded = speaking("xlnet", two_directions=True)
    ids = draw(7, 2)
    side = look(loaded, ids, order=[4, 1, 6]).sides[0]
    assert [stack.kind for stack in side.stacks] == ["content", "query"]
    rank = [1, -1, -1, 0, -1, 2, -1]
    loaded.model.directions = (1,)
    inputs = {"order": torch.tensor([rank]), "targets": torch.tensor([[0, 3, 5]])}
    expected = recorded(loaded.model, torch.tensor([ids]), **inputs)
    for layer, weights in enumerate(expected):
        np.testing.assert_allclose(heads_of(side, "content")[layer], weights[:, :7], atol=CLOSE)
        np.testing.assert_allclose(heads_of(side, "query")[layer], weights[:, 7:], atol=CLOSE)
    query = heads_of(side, "query")[0][0]
    context = np.array([False, True, True, False, True, False, True])
    assert (query[1] > 0).tolist() == context.tolist()  # the first guess sees what is given
    assert (query[0] > 0).tolist() == [False, True, True, True, True, False, True]
    content = heads_of(side, "content")[0][0]
    assert content[0, 0] > 0 and query[0, 0] == 0  # a content row sees itself
    assert [t.rank for t in side.tokens["text"]] == [2, None, None, 1, None, 3, None]
    rolled = side.stack("query").layers[-1].rollout
    below = 0.5 * expected[0].mean(0)[:7] + 0.5 * np.eye(7)
    share = 0.5 * expected[1].mean(0)[7:] @ below + 0.25 * expected[0].mean(0)[7:]
    np.testing.assert_allclose(rolled, share, atol=CLOSE)


def test_an_order_may_be_drawn() -> None:
    loaded = speaking("xlnet")
    one, same, other = (look(loaded, SENTENCE, order=seed).sides[0] for seed in (1, 1, 2))
    drawn = [[t.rank for t in side.tokens["text"]] for side in (one, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) == list(range(1, len(drawn[0]) + 1))


def test_a_pair_has_three_stacks() -> None:
    loaded = speaking("transformer")
    config, words = loaded.config, loaded.tokenizer
    assert words is not None
    side = look(loaded, "The cat sat.", target="猫坐在").sides[0]
    source = [*words.encode("The cat sat."), config.eos_id]
    source = source if words.encode("The cat sat.")[-1] != config.eos_id else source[:-1]
    target = [config.start_id, *words.encode("猫坐在", special=False)]
    expected = recorded(loaded.model, torch.tensor([source]), torch.tensor([target]))
    heads = [*heads_of(side, "encoder")]
    for own, cross in zip(heads_of(side, "decoder"), heads_of(side, "cross"), strict=True):
        heads += [own, cross]
    assert len(heads) == len(expected) == 2 + 3 + 3
    for own, weights in zip(heads, expected, strict=True):
        np.testing.assert_allclose(own, weights, atol=CLOSE)
    assert (side.stack("cross").rows, side.stack("cross").columns) == ("target", "source")
    written = look(loaded, "The cat sat.").sides[0]
    assert any(note["key"] == "written" for note in written.notes)
    ids = loaded.generate("The cat sat.", max_new_tokens=64).ids
    ids = ids[:-1] if ids[-1] == config.eos_id else ids
    assert [t.text for t in written.tokens["target"][1:]] == [t.text for t in tokens_of(words, ids)]


def test_a_pair_is_rolled_out_through_both_stacks() -> None:
    """Target and source as the rows of one matrix: each attention of the decoder mixes all rows."""
    side = look(speaking("transformer"), "The cat sat.", target="猫坐在").sides[0]
    means = {kind: [w.mean(0) for w in heads_of(side, kind)] for kind in ("decoder", "cross")}
    encoder = naive_rollout([weights.mean(0) for weights in heads_of(side, "encoder")])
    np.testing.assert_allclose(side.stack("encoder").layers[-1].rollout, encoder, atol=CLOSE)
    rows, keys = means["cross"][0].shape
    product = np.eye(rows + keys)
    product[rows:, rows:] = encoder
    for layer, (own, cross) in enumerate(zip(means["decoder"], means["cross"], strict=True)):
        for kind, place, mean in (("decoder", 0, own), ("cross", rows, cross)):
            step = np.eye(rows + keys)
            step[:rows, :rows] *= 0.5
            step[:rows, place : place + mean.shape[1]] += 0.5 * mean
            product = step @ product
            drawn, share = side.stack(kind).layers[layer].rollout, product[:rows, place:]
            np.testing.assert_allclose(drawn, share[:, : mean.shape[1]], atol=CLOSE)
    np.testing.assert_allclose(product.sum(1), 1.0, atol=1e-5)


@pytest.mark.parametrize("room,kind", [(24, "u1"), (2, "top")])
def test_a_long_text_stays_small(room: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 tokens with a window, all heads: the page is bounded, and the numbers still hold."""
    monkeypatch.setattr(packing, "MOST", room * 2**20)
    loaded = speaking("longformer", heads=2, layers=1, window=512)
    ids = draw(4096, 5)
    recorded = look(loaded, ids)
    side = recorded.sides[0]
    assert side.precision.kind == kind
    assert len(recorded.html()) < 1.5 * min(room, 8) * 2**20
    weights = side.stack("self").layers[0].weights(1)
    inputs = {"global_tokens": torch.tensor([[True] + [False] * 4095])}
    with torch.no_grad(), regard.record(loaded.model) as seen:
        loaded.model(torch.tensor([ids]), **inputs)
    one = seen[0]
    for row in (1, 700, 4000):
        scores = one.queries[0, 1, row] @ one.keys[0, 1].T * one.how.scale
        near = (torch.arange(4096) - row).abs() <= 256
        near[0] = True
        expected = scores.masked_fill(~near, -torch.inf).softmax(-1).numpy()
        attended = weights[row] > 0
        assert attended.sum() == (near.sum() if kind == "u1" else side.precision.count)
        assert np.abs(weights[row] - expected)[attended].max() <= expected.max() / 500
        assert expected[~attended].max() <= weights[row][attended].min() + expected.max() / 500


def test_rollout_of_one_layer_is_half_itself() -> None:
    mean = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    assert Rollout(2, 0).add(mean).tolist() == [[1.0, 0.0], [0.25, 0.75]]


def test_two_sides() -> None:
    one, other = speaking("gpt", seed=1), speaking("bert", seed=2)
    texts = look(one, SENTENCE, second="The dog did not.").sides
    assert [side.text for side in texts] == [SENTENCE, "The dog did not."]
    models = look(one, SENTENCE, against=other).sides
    assert [side.family for side in models] == ["gpt", "bert"]
    heard: list[tuple[int, int]] = []
    alone = look(one, SENTENCE, tell=lambda *both: heard.append(both)).sides[0]
    assert heard == [(1, 2), (2, 2)]
    np.testing.assert_array_equal(
        models[0].stacks[0].layers[0].weights(0), alone.stacks[0].layers[0].weights(0)
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return informed(tmp_path_factory.mktemp("look"))


def test_facts_are_branches(tuned: Path, tmp_path: Path) -> None:
    loaded = regard.load(tuned)
    side = look(loaded, "the film was dull", knowledge=True).sides[0]
    shown = [(t.text, "branch" in t.marks) for t in side.tokens["text"]]
    assert shown == [
        ("[CLS]", False), ("the", False), ("film", False), ("of", True), ("warm", True),
        ("was", False), ("dull", False), ("[SEP]", False),
    ]  # fmt: skip
    assert side.facts == ["film — of warm"]
    weights = side.stack("self").layers[0].weights(0)
    assert weights[2, 3] > 0 and weights[3, 2] > 0  # a word and its branch see each other
    assert weights[1, 3] == 0 and weights[3, 1] == 0  # the others do not
    table = json.loads((tuned / "task.json").read_text())
    table["objective"]["knowledge"] |= {"mode": "bias", "rules": ["entity", "related"]}
    guided = tmp_path / "guided"
    shutil.copytree(tuned, guided)
    (guided / "task.json").write_text(json.dumps(table))
    side = look(regard.load(guided), "the film was dull", knowledge=True).sides[0]
    assert [t.text for t in side.tokens["text"] if "entity" in t.marks] == ["film"]
    bare = look(loaded, "the film was dull").sides[0]
    assert len(bare.tokens["text"]) == 6 and not bare.facts


def test_the_command(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "look.html"
    words = ["look", str(tuned), "the film was dull", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    stack = facts["sides"][0]["stacks"][0]
    assert facts["page"] == str(out) and stack["layers"] == 2 and stack["heads"] == [2, 2]
    average = np.array(stack["average"][1])
    side = look(regard.load(tuned), "the film was dull").sides[0]
    np.testing.assert_allclose(average, side.stack("self").layers[1].average, atol=1e-6)
    before = out.read_bytes()
    assert main(words) == 2 and "exists" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main([*words, "--force", "--with-knowledge"]) == 0
    assert "branch" in out.read_text(encoding="utf-8")
    assert main(["look", str(tuned), " ", "--out", str(tmp_path / "no.html")]) == 2
    assert main([*words, "--force", "--permutation", "a,b"]) == 2
    assert not (tmp_path / "no.html").exists()
    capsys.readouterr()
    assert main(["look", str(tuned), "film", "--out", str(tmp_path / "none" / "a.html")]) == 2
    assert "no directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "text", "options", "error", "names"),
    [
        ("gpt", " ", {}, InputError, ["no text"]),
        ("xlnet", [1] * 9000, {}, InputError, ["9,000", "8,192"]),
        ("gpt", [1, -2], {}, InputError, ["-2", "id"]),
        ("transformer", [1, -2], {}, InputError, ["-2", "id"]),
        ("longformer", [1, 2], {"global_tokens": [3]}, InputError, ["global tokens", "1 to 2"]),
        ("gpt", SENTENCE, {"memory": "before"}, InputError, ["memory", "XLNet", "gpt"]),
        ("gpt", SENTENCE, {"order": [1]}, InputError, ["order", "XLNet", "gpt"]),
        ("xlnet", SENTENCE, {"order": [1, 1]}, InputError, ["order is [1, 1]"]),
        ("xlnet", SENTENCE, {"order": [0]}, InputError, ["order is [0]"]),
        ("xlnet", SENTENCE, {"order": [99]}, InputError, ["order is [99]"]),
        ("xlnet", SENTENCE, {"order": []}, InputError, ["order is empty"]),
        ("gpt", SENTENCE, {"second": "x", "against": object()}, InputError, ["not both"]),
        ("bert", SENTENCE, {"knowledge": True}, ConfigError, ["--knowledge"]),
    ],
)
def test_refusals(family: str, text: Any, options: Any, error: Any, names: list[str]) -> None:
    with refuses(error, *names):
        look(speaking(family), text, **options)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_long_texts_are_refused_before_anything_is_computed(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first text, the second, the target and the memory; of tokens or of letters."""
    loaded = speaking(family)
    monkeypatch.setattr(type(loaded.model), "forward", computed)
    changes: list[dict[str, Any]] = [{"second": [1] * 9000}]
    changes += [{"target": [1] * 9000}] if loaded.model.kind == "encoder-decoder" else []
    changes += [{"memory": [1] * 9000}] if loaded.model.remembers == "rows" else []
    for text, options in [([1] * 9000, {}), *(([1], each) for each in changes)]:
        with refuses(InputError, "9,000 tokens", "8,192"):
            look(loaded, text, **options)
    with refuses(InputError, "1,000,000 characters", "8,192"):
        look(loaded, " " * 999_999 + "a")


def computed(*_: object, **__: object) -> None:
    raise AssertionError("the model was run")


def test_many_heads_leave_room_for_fewer_tokens() -> None:
    loaded = speaking("t5", heads=32)
    with refuses(InputError, "2,049 tokens", "2,048"):
        look(loaded, [1] * 2049)


def test_a_model_without_attention_or_memory_is_refused() -> None:
    with refuses(InputError, "LSTM", "attention"):
        look(LoadedModel(specimen("lstm").fresh()), [1, 2])
    with refuses(InputError, "memory is 0"):
        look(speaking("transformer-xl", mem_len=0), SENTENCE, memory="before")
