"""Lens, ablation, patching and attribution: what must hold for every family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.lab.deeper.ablate import Ablation, AblationTable
from regard.lab.deeper.question import AskedText
from regard.lab.look.reading import LookOptions
from regard.models.bert import Bert, BertConfig
from regard.models.lstm import LSTM, LSTMConfig
from tests.decoding.small import draw
from tests.lab.look.small import CONFIGS, SHAPE, speaking
from tests.laws.zoo import VOCABULARY, ZOO, Specimen
from tests.refusals import refuses

CASES: dict[str, dict[str, Any]] = {
    "gpt": {},
    "bert": {},
    "longformer": {"global_tokens": [1, 3]},
    "transformer": {"target": "The dog"},
    "t5": {"target": "The dog"},
    "transformer-xl": {"memory": "The dog did it."},
    "xlnet": {"memory": "The dog did it."},
}
FAMILIES = pytest.mark.parametrize("family", CASES)
BLANK, PLAIN = "The cat sat on the ___ .", "The cat sat on the mat"


def text_of(family: str, word: str = "cat") -> str:
    text = BLANK if CONFIGS[family][0].kind == "encoder" else PLAIN
    return text.replace("cat", word)


def question_of(loaded: LoadedModel, family: str) -> AskedText:
    return AskedText.of(loaded, text_of(family), LookOptions(**CASES[family]))


def ids_of(loaded: LoadedModel, family: str) -> tuple[list[int], list[int]]:
    """Two texts of the same length, of which some tokens differ; a blank stays where it is."""
    words: Any = loaded.tokenizer
    ids = words.encode(PLAIN, special=False)
    other = [ids[-1], *ids[1:]]
    assert ids != other
    return ids, other


@FAMILIES
def test_the_last_row_of_the_lens_is_the_model(family: str) -> None:
    loaded = speaking(family)
    lens = loaded.lens(text_of(family), **CASES[family])
    question = question_of(loaded, family)
    with torch.no_grad():
        own = loaded.model.logits(question.hidden())[0]
    assert torch.equal(lens.logits(), own)
    assert len(lens.best) == len(lens.states) == lens.layers + 1
    layers = getattr(loaded.config, "decoder_layers", None) or loaded.config.layers
    assert lens.layers == layers
    assert len(lens.tokens) == own.size(0) == len(lens.best[0])
    for row, likely in zip(own.softmax(-1), lens.best[-1], strict=True):
        assert [one.id for one in likely] == row.topk(5).indices.tolist()
        assert [one.probability for one in likely] == row.topk(5).values.tolist()
    assert not torch.equal(lens.logits(0), own)


@FAMILIES
def test_to_ablate_nothing_changes_nothing(family: str) -> None:
    loaded = speaking(family)
    result: Any = loaded.ablate(text_of(family), **CASES[family])
    question = question_of(loaded, family)
    with torch.no_grad():
        own = loaded.model.logits(question.hidden())[0, question.row].softmax(-1).numpy()
    assert np.array_equal(result.before, own) and np.array_equal(result.after, own)
    assert result.off == [] and all(one.difference == 0 for one in result.changes)


@FAMILIES
def test_a_head_without_a_way_out_is_a_head_that_is_off(family: str) -> None:
    """Zeros in its columns of the output projection do the same as the hook; and the table of all
    heads holds the same numbers."""
    loaded, text, options = speaking(family), text_of(family), CASES[family]
    kind = "cross" if loaded.model.kind == "encoder-decoder" else "self"
    place = ".".join([*(["cross"] if kind == "cross" else []), "2", "1"])
    result: Any = loaded.ablate(text, heads=[place], **options)
    assert not np.array_equal(result.before, result.after)
    table: Any = loaded.ablate(text, heads="all", **options)
    assert isinstance(table, AblationTable) and isinstance(result, Ablation)
    assert table.cells[kind][1][0].changes == result.changes
    assert table.effects(kind)[1][0] == result.token.difference
    block: Any = (loaded.model.stacks().get("decoder") or loaded.model.stacks()[""])[1]
    layer = block.cross.layer if kind == "cross" else block.attention.layer
    part = getattr(layer, "local", layer)
    with torch.no_grad():
        part.out.weight[:, : part.project.size] = 0.0
    cut: Any = loaded.ablate(text, **options)
    np.testing.assert_allclose(cut.before, result.after, atol=1e-6)


@FAMILIES
def test_patches(family: str) -> None:
    """Clean into clean changes nothing; everything at the last layer gives the clean answer; and a
    patch of one row is between."""
    loaded, options = speaking(family), CASES[family]
    clean, corrupted = ids_of(loaded, family)
    more = options | ({"position": 3} if loaded.model.kind == "encoder" else {})
    if family == "xlnet":
        more = options | {"order": [3]}
    for of in ("residual", "heads"):
        same = loaded.patch(clean, clean, of=of, layers=[1], **more)
        assert same.clean == same.corrupted
        assert all(c == same.clean for t in same.tables for row in t.cells for c in row)
    last = loaded.config.layers
    own = loaded.config.layers if loaded.model.kind != "encoder-decoder" else 0
    result = loaded.patch(clean, corrupted, layers=[own], together=True, **more)
    assert result.clean != result.corrupted
    assert result.together == result.clean
    swept = loaded.patch(clean, corrupted, layers=[0, 1], positions=[1, 2], **more)
    table = swept.tables[0]
    assert table.layers == [0, 1] and [len(row) for row in table.cells] == [2, 2]
    assert table.cells[0][0] == swept.clean  # only the first token differs
    assert table.cells[0][1] == swept.corrupted
    assert swept.recovered(swept.clean) == 1.0 and swept.recovered(swept.corrupted) == 0.0
    heads = loaded.patch(clean, corrupted, of="heads", layers=[last], **more)
    assert any(c != heads.corrupted for t in heads.tables for row in t.cells for c in row)


def test_texts_of_other_lengths_need_an_alignment() -> None:
    loaded = speaking("gpt")
    words: Any = loaded.tokenizer
    ids = words.encode(PLAIN, special=False)
    longer = [ids[1], *ids]
    with refuses(InputError, len(ids), len(longer), "alignment"):
        loaded.patch(ids, longer)
    with refuses(InputError, "(1, 99)"):
        loaded.patch(ids, longer, alignment=[(1, 99)])
    pairs = [(i, i + 1) for i in range(1, len(ids) + 1)]
    result = loaded.patch(ids, longer, alignment=pairs, layers=[2], together=True)
    assert result.together == result.clean
    with refuses(InputError, "position", 1):  # no clean state belongs to it
        loaded.patch(ids, longer, alignment=pairs, positions=[1])


def test_another_memory_is_patched_away() -> None:
    loaded = speaking("transformer-xl")
    memories = {"memory": "The dog did it.", "corrupted_memory": "The cat sat."}
    result = loaded.patch(PLAIN, PLAIN, layers=[2], together=True, **memories)
    assert result.clean != result.corrupted and result.together == result.clean


@FAMILIES
@pytest.mark.parametrize("measure", ["logit", "probability"])
def test_attributions_are_complete(family: str, measure: str) -> None:
    loaded = speaking(family)
    loaded.model.double()
    if family == "t5":  # its scores are not scaled: large weights would make it jump
        for value in loaded.model.parameters():
            value.data.mul_(0.5)
    result = loaded.attribute(text_of(family), measure=measure, steps=200, **CASES[family])
    question = question_of(loaded, family)
    with torch.no_grad():
        scores = question.answer()
    own = scores if measure == "logit" else scores.softmax(-1)
    assert result.output == float(own.max()) and result.id == int(own.argmax())
    assert result.output != result.baseline
    assert abs(result.gap) < 0.01 * abs(result.output - result.baseline) + 2e-5
    texts = ["source", "target"] if loaded.model.kind == "encoder-decoder" else ["text"]
    texts = ["memory", *texts] if "memory" in CASES[family] else texts
    assert list(result.scores) == texts
    for name in texts:
        assert len(result.scores[name]) == len(result.tokens[name])
        assert any(result.scores[name])


def test_a_linear_model_has_the_attributions_of_algebra() -> None:
    """Without layers' work, the logit is linear in the embedding of its own row alone."""
    specimen = next(one for one in ZOO if one.name == "llama")
    model = specimen.fresh(torch.float64)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.layer.out.weight.zero_()
            block.feed_forward.layer.narrow.weight.zero_()
    model.norm = torch.nn.Identity()
    ids = draw(6, 1, VOCABULARY)
    result = LoadedModel(model).attribute(ids, steps=3)  # exact for the points of the path
    with torch.no_grad():
        expected = float(model.output.weight[result.id] @ model.tokens.weight[ids[-1]])
    assert result.scores["text"][:-1] == [0.0] * 5
    assert result.scores["text"][-1] == pytest.approx(expected) == pytest.approx(result.output)
    assert result.baseline == 0.0


@pytest.mark.parametrize(
    "specimen",
    [s for s in ZOO if s.name in ("gpt1", "gpt3", "llama-grouped", "roberta", "characters",
                                  "xlnet-left", "transformer-xl-pre")],
    ids=str,
)  # fmt: skip
def test_other_members_of_the_families(specimen: Specimen) -> None:
    """Post-norm, bands, grouped queries, split attentions, left-to-right XLNet."""
    loaded, ids = LoadedModel(specimen.fresh()), draw(12, 3, VOCABULARY)
    more: dict[str, Any] = {"position": 5} if specimen.name == "roberta" else {}
    with torch.no_grad():
        own = loaded.model.logits(loaded.model(torch.tensor([ids])))[0]
    assert torch.equal(loaded.lens(ids).logits(), own)
    table: Any = loaded.ablate(ids, heads="all", **more)
    assert [len(row) for row in table.cells["self"]] == [loaded.config.heads] * loaded.config.layers
    assert len({cell.logits[1] for row in table.cells["self"] for cell in row}) > 1
    assert abs(loaded.attribute(ids, steps=100, **more).gap) < 0.05
    patched = loaded.patch(ids, ids[::-1], layers=[loaded.config.layers], together=True, **more)
    assert patched.together == patched.clean


def test_layers_that_are_off() -> None:
    """Of two layers without the second one, the model is the one after the first; a mean of all
    rows is what the block adds on average."""
    loaded = speaking("gpt")
    result: Any = loaded.ablate(PLAIN, layers=[2])
    assert result.off == ["2"]
    shares = loaded.lens(PLAIN).logits(1)[-1].softmax(-1).numpy()
    assert np.array_equal(result.after, shares)
    both: Any = loaded.ablate(PLAIN, layers=["1", 2])
    assert np.array_equal(both.after, loaded.lens(PLAIN).logits(0)[-1].softmax(-1).numpy())
    mean: Any = loaded.ablate(PLAIN, layers=[2], method="mean")
    states: list[torch.Tensor] = []
    hooks = [b.register_forward_hook(lambda _, x, y: states.extend((x[0], y)))
             for b in loaded.model.blocks]  # fmt: skip
    words: Any = loaded.tokenizer
    with torch.no_grad():
        loaded.model(torch.tensor([words.encode(PLAIN, special=False)]))
        for hook in hooks:
            hook.remove()
        state = states[2] + (states[3] - states[2]).mean(1, keepdim=True)
        own = loaded.model.logits(loaded.model.norm(state))[0, -1].softmax(-1)
    np.testing.assert_allclose(mean.after, own.numpy(), atol=1e-6)


def encoder(heads: dict[str, int]) -> LoadedModel:
    words = speaking("bert").tokenizer
    assert words is not None
    model = Bert(BertConfig(**SHAPE, vocab_size=len(words)), heads)
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0.0, 0.3, generator=dice)
    return LoadedModel(model.eval(), words)


def test_a_label_is_an_answer_too() -> None:
    loaded = encoder({"classify": 3})
    result: Any = loaded.ablate(PLAIN, heads=["1.1"], token="2")
    assert result.token.id == 2 and result.before.shape == (3,)
    assert {one.text for one in result.changes} == {"0", "1", "2"}
    lens = loaded.lens(PLAIN)
    assert lens.tokens == ["(text)"] and lens.best[-1][0][0].probability == result.before.max()
    assert abs(loaded.attribute(PLAIN, steps=200).gap) < 1e-3
    score: Any = encoder({"classify": 1}).ablate(PLAIN, heads=["1.1"])
    assert score.token.before == score.logits[0]
    with refuses(UnknownName, "good"):
        loaded.attribute(PLAIN, token="good")


def test_a_blank_is_what_fill_fills() -> None:
    for family in ("bert", "xlnet"):
        loaded = speaking(family)
        filled: Any = loaded.fill(BLANK, top_k=1)
        result: Any = loaded.ablate(BLANK)
        assert result.token.id == filled.blanks[0][0].ids[0]
        assert result.token.before == pytest.approx(filled.blanks[0][0].probability, abs=1e-6)


REFUSALS: list[tuple[str, str, dict[str, Any], type[Exception], str]] = [
    ("ablate", "gpt", {"heads": ["9.1"]}, InputError, "9"),
    ("ablate", "gpt", {"heads": ["1.9"]}, InputError, "1 to 2"),
    ("ablate", "gpt", {"heads": ["cross.1.1"]}, UnknownName, "cross"),
    ("ablate", "gpt", {"heads": [3]}, InputError, "3.2"),
    ("ablate", "gpt", {"layers": ["1.1"]}, InputError, "1.1"),
    ("ablate", "gpt", {"layers": [0]}, InputError, "0"),
    ("ablate", "gpt", {"heads": "all", "layers": [1]}, InputError, "layers"),
    ("ablate", "gpt", {"method": "noise"}, UnknownName, "noise"),
    ("ablate", "gpt", {"token": "The cat sat on the mat. 🤖"}, InputError, "one token"),
    ("ablate", "gpt", {"token": 10**6}, InputError, 10**6),  # type: ignore[list-item]
    ("ablate", "gpt", {"position": 99}, InputError, "99"),
    ("ablate", "gpt", {"target": "The"}, InputError, "target"),
    ("ablate", "bert", {}, InputError, "[MASK]"),
    ("ablate", "xlnet", {}, InputError, "[MASK]"),
    ("attribute", "gpt", {"steps": 0}, ConfigError, "steps"),
    ("attribute", "gpt", {"measure": "loss"}, UnknownName, "loss"),
    ("lens", "gpt", {"top_k": 0}, ConfigError, "top_k"),
]


@pytest.mark.parametrize("verb,family,options,error,part", REFUSALS)
def test_refusals(verb: str, family: str, options: Any, error: Any, part: Any) -> None:
    with refuses(error, part):
        getattr(speaking(family), verb)(PLAIN, **options)


def test_the_place_of_an_answer() -> None:
    """The classes of a head that marks an answer are the tokens; its rows are start and end."""
    loaded = encoder({"answer": 2})
    read = {"pair": "The dog slept"}
    lens = loaded.lens(PLAIN, **read)
    assert lens.tokens == ["start", "end"]
    hidden = lens.question.hidden()
    shares = loaded.model.read("answer", hidden)[0].softmax(0).detach()
    for row in (0, 1):
        best = lens.best[-1][row][0]
        place = int(shares[:, row].argmax())
        assert best.id == place and best.probability == pytest.approx(float(shares[place, row]))
        assert best.text.startswith(f"{place + 1} ")
    start = lens.best[-1][0][0]
    ablation: Any = loaded.ablate(PLAIN, heads=["1.1"], **read)
    assert ablation.row == "start" and ablation.token.id == start.id
    assert ablation.token.before == pytest.approx(start.probability)
    assert abs(loaded.attribute(PLAIN, position=2, **read).gap) < 1e-2
    clean = loaded.patch(PLAIN, PLAIN, **read)
    assert clean.clean == pytest.approx(clean.corrupted)
    with refuses(InputError, "a place in the text"):
        loaded.patch(PLAIN, PLAIN + " again and again", alignment=[(1, 1)], **read)


def test_models_that_cannot() -> None:
    lstm = LoadedModel(LSTM(LSTMConfig(vocab_size=29, width=8)).initialize().eval())
    for verb in ("lens", "ablate"):
        with refuses(InputError, "lstm"):
            getattr(lstm, verb)([1, 2, 3])
    assert abs(lstm.attribute([1, 2, 3]).gap) < 1e-4  # gradients need no attention
    with refuses(InputError, "vocabulary"):
        encoder({"pool": 16}).lens(PLAIN)
    with refuses(InputError, "heads", "positions"):
        speaking("gpt").patch(PLAIN, PLAIN, of="heads", positions=[1])


def test_another_thread_sees_nothing() -> None:
    """Hooks act only in the thread that placed them."""
    from concurrent.futures import ThreadPoolExecutor

    from regard.lab.deeper.hooks import changed

    loaded = speaking("gpt")
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad(), ThreadPoolExecutor(1) as pool:
        own = loaded.model(ids)

        def elsewhere() -> torch.Tensor:
            with torch.no_grad():
                return loaded.model(ids)

        block: Any = loaded.model.blocks[1]
        with changed(outputs=[(block, lambda x, y: x)]):
            assert torch.equal(pool.submit(elsewhere).result(), own)
            assert not torch.equal(loaded.model(ids), own)
        assert torch.equal(loaded.model(ids), own)
        assert not block._forward_hooks and not block._forward_pre_hooks


def test_results_show_themselves_in_a_notebook() -> None:
    loaded = speaking("transformer")
    more = CASES["transformer"]
    shown = [
        loaded.lens(PLAIN, **more), loaded.ablate(PLAIN, heads=["cross.1.1"], **more),
        loaded.ablate(PLAIN, heads="all", **more), loaded.patch(PLAIN, PLAIN, layers=[1], **more),
        loaded.attribute(PLAIN, steps=4, **more),
    ]  # fmt: skip
    for result in shown:
        assert '<div class="regard">' in result._repr_html_()
