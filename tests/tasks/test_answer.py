"""Questions about passages: windows and targets by hand, and what becomes of a model's scores."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers

import regard
from regard.core.errors import ConfigError, InputError
from regard.data.examples import AnswerSpan as Gold
from regard.data.examples import Question
from regard.data.tokenizer import Tokenizer
from regard.data.windows import cuts
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.metrics.answers import overlap
from regard.models import FAMILIES as CARDS
from regard.tasks.answer_objective import AnswerObjective, AnswerOptions, WindowAnswers
from regard.tasks.corpus import TaskCorpus
from regard.tasks.task_tokens import extended
from tests.data.windowing import collate, to_learn
from tests.tasks.answers import (
    FAMILIES,
    PAD,
    SIX,
    TOKENIZER,
    asked,
    batch_of,
    long_ones,
    model_of,
    objective,
    predicted,
    published,
    words,
)

# -- windows

MARKS = ("start", "sep", "cls")  # of a GPT


@pytest.mark.parametrize(
    ("family", "length", "row", "segments", "target", "cls"),
    [
        ("bert", 9, "[CLS] q r [SEP] c d e f [SEP]", "000011111", (6, 7), 0),
        ("longformer", 10, "[CLS] q r [SEP] [SEP] c d e f [SEP]", None, (7, 8), 0),
        ("gpt", 9, "[BOS] q r [SEP] c d e f [CLS]", None, (6, 7), 8),
        ("xlnet", 9, "c d e f [SEP] q r [SEP] [CLS]", "000001112", (2, 3), 8),
    ],
)
def test_windows_by_hand(
    family: str, length: int, row: str, segments: str | None, target: tuple[int, int], cls: int
) -> None:
    """Room for four of six tokens, in steps of two: the second window holds the answer, and
    learning from data that always has one takes no other.
    """
    made = objective(family, [SIX], length)
    assert made.options.impossible == "no"
    assert len(made) == 1
    batch = batch_of(made)
    assert words(batch["tokens"][0, :length]) == row
    assert (int(batch["start"]), int(batch["end"]), int(batch["cls"])) == (*target, cls)
    assert words(batch["tokens"][batch["passage"]]) == "c d e f"
    assert words(batch["tokens"][batch["fullest"]]) == "d e f"
    assert words(batch["tokens"][batch["question"]]) == "q r"
    assert batch["eligible"].sum() == 5
    if segments is None:
        assert "segments" not in batch
    else:
        assert "".join(map(str, batch["segments"][0, :length].tolist())) == segments
    every = objective(family, [SIX], length, split="valid")
    assert [len(every), *batch_of(every)["known"].tolist()] == [2, False, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_impossible_questions_point_to_cls(family: str) -> None:
    """One of them among the data, and every window is learned from."""
    none = asked("a b", impossible=True)
    made = objective(family, [SIX, none], 10)
    assert made.options.impossible == "yes"
    batch = batch_of(made)
    assert len(made) == 3
    assert ((batch["start"] == batch["cls"]) == torch.tensor([True, False, True])).all()
    without = objective(family, [SIX, none], 10, impossible="no")
    assert len(without) == 1
    assert "1 questions of the train data have no answer in their passage" in without.note


def test_padding_stands_on_the_right() -> None:
    batch = batch_of(objective("xlnet", [SIX, asked("a", ("a", 0))], 12, stride=3))
    assert words(batch["tokens"][1]) == "a [SEP] q r [SEP] [CLS]" + 5 * " [PAD]"
    assert batch["segments"][1].tolist() == [0, 0, 1, 1, 1, 2] + 5 * [3]
    assert batch["attention_mask"][1].sum() == 6


LETTERS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(LETTERS, min_size=1, max_size=3), st.integers(1, 12))
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_are_those_of_the_windows(
    family: str, data: st.DataObject, passages: list[list[str]], stride: int
) -> None:
    examples = []
    for letters in passages:
        first = data.draw(st.integers(0, len(letters) - 1))
        last = data.draw(st.integers(first, len(letters) - 1))
        text = " ".join(letters)
        examples.append(asked(text, (text[2 * first : 2 * last + 1], 2 * first)))
    examples.append(asked("a", ("a", 0)))  # so that one is always learned
    refuse = data.draw(st.booleans())
    length = data.draw(st.integers(9, 20))
    layout = replace(CARDS[family].passage_format, length=length, stride=stride)
    special = TaskCorpus("answer", examples, TOKENIZER).special
    reads = [read for read, _ in cuts(examples, TOKENIZER, special, layout)]
    made = objective(family, examples, length, stride=stride, impossible="yes" if refuse else "no")
    batch = batch_of(made)
    expected = collate(to_learn(reads, refuse=refuse), PAD, layout.beyond, batch["tokens"].size(1))
    assert torch.equal(batch.pop("tokens"), torch.from_numpy(expected.pop("ids")))
    for name, value in expected.items():
        if name != "segments" or made.frame.segments:
            assert torch.equal(batch[name], torch.from_numpy(value)), name


def test_answers_not_found_are_told_and_skipped() -> None:
    wrong = [asked("a b c", ("z" * n, 2)) for n in range(1, 6)]
    second = asked("a b c", ("c", 0), ("b", 2))  # another answer is right
    made = objective("bert", [SIX, *wrong, second])
    assert len(made) == 2
    assert "6 answers of the train data were not found and are skipped" in made.note
    assert "squad.json:7: one: the answer 'zz' is not at character 2" in made.note
    assert "'zzzz'" not in made.note  # a few will do
    assert "5 questions of the train data have no known answer" in made.note
    with pytest.raises(InputError, match=r"none of the 5 questions .* 5 answers of the train"):
        objective("bert", wrong)


def test_notes_of_what_is_long() -> None:
    long = asked("a b c", ("b", 2), question="q r q r")
    made = objective("bert", [SIX, long], question=2)
    assert "1 of 2 questions of the train data do not fit 9 tokens" in made.note
    assert "read in 2 windows" in made.note
    assert "1 questions of the train data have more than 2 tokens and were cut" in made.note
    whole = asked("a b c d e f", ("a b c d e", 0))
    assert "1 questions of the train data have an answer that no window of 9 tokens holds" in (
        objective("bert", [SIX, whole]).note
    )
    assert objective("bert", [SIX], 16).note == ""


@pytest.mark.parametrize(
    ("family", "options", "named"),
    [
        ("transformer-xl", {}, "cannot learn answer so; these can: bert, xlnet, longformer"),
        ("bert", {"impossible": "maybe"}, "impossible is 'maybe'; it must be one of auto"),
        ("bert", {"stride": -1}, "stride is -1"),
        ("bert", {"marks": False}, "bert cannot do without marks; only gpt"),
    ],
)
def test_bad_options(family: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        objective(family, [SIX], **options)


def test_a_model_without_a_head_for_answers() -> None:
    with pytest.raises(ConfigError, match="no head that finds answers"):
        objective("bert", [SIX]).check(model_of("bert", classify=2))


def test_what_the_data_to_learn_from_decides() -> None:
    none = asked("a b", impossible=True)
    assert objective("bert", [SIX, none], 16).settled() == {"impossible": "yes"}
    settled = objective("bert", [SIX], 16).settled()
    assert settled == {"impossible": "no"}
    valid = objective("bert", [SIX, none], 16, split="valid", **settled)
    assert not valid.refuse and batch_of(valid)["known"].tolist() == [True, False]
    # a test does not decide whether to refuse
    assert objective("bert", [none], split="test").options.impossible == "no"


# -- answers


def test_windows_are_merged() -> None:
    """The second window of the first question has the best span; positions are its own."""
    made = objective("bert", [SIX, asked("a b", ("b", 2))], split="valid")
    assert len(made) == 3
    found = made.merge(
        [
            WindowAnswers([2.0, 1.0], [4, 5], [5, 5], None, True),  # a b, b
            WindowAnswers([3.0, 2.0], [6, 5], [7, 5], None, True),  # e f, d
            WindowAnswers([1.0, -math.inf], [5, 0], [5, 0], None, True),  # b
        ]
    )
    assert [one.value for one in found] == ["e f", "b"]
    (best, begin, end, chance), *others = found[0].scores["candidates"]
    assert (best, begin, end) == ("e f", 8, 11)
    assert [text for text, *_ in others] == ["a b", "d", "b"]
    total = sum(math.exp(score) for score in (3, 2, 2, 1))
    assert found[0].score == chance == pytest.approx(math.exp(3) / total)
    assert found[0].scores["null"] is None
    assert found[1].score == 1.0


@pytest.mark.parametrize(("tau", "value"), [(0.0, ""), (1.5, "e f")])
def test_no_answer(tau: float, value: str) -> None:
    """The least null score of the windows, 4, beats the best span by 1."""
    made = objective("bert", [SIX], split="valid", impossible="yes", tau=tau)
    rows = [WindowAnswers([2.0], [4], [5], 4.0, True), WindowAnswers([3.0], [6], [7], 6.0, True)]
    (found,) = made.merge(rows)
    assert found.value == value
    assert found.scores["null"] == pytest.approx(1.0)
    chances = [math.exp(x) / sum(math.exp(y) for y in (2, 3, 4)) for x in (2, 3, 4)]
    assert found.score == pytest.approx(chances[1 if value else 2])


@pytest.mark.parametrize(("tau", "value"), [(0.0, ""), (1.0, "e f")])
def test_no_answer_of_xlnet(tau: float, value: str) -> None:
    """Its logit stands alone: 0.5, a probability of 0.62."""
    made = objective("xlnet", [SIX], split="valid", impossible="yes", tau=tau)
    rows = [
        WindowAnswers([-1.0], [0], [1], 2.0, False),
        WindowAnswers([-1.0], [2], [3], 0.5, False),
    ]
    (found,) = made.merge(rows)
    none = 1 / (1 + math.exp(-0.5))
    assert found.value == ("a b" if value else "")  # the first of equals
    assert found.scores["null"] == 0.5
    assert found.score == pytest.approx((1 - none) / 2 if value else none)


def without_articles(one: Question) -> Question:
    """An answer "a" would count as none."""
    answers = tuple(Gold(gold.text.replace("a", "h"), gold.start) for gold in one.answers)
    return replace(one, passage=one.passage.replace("a", "h"), answers=answers)


def f1(gold: Question, value: str) -> float:
    return max(overlap(answer.text, value) for answer in gold.answers or (Gold("", 0),))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_threshold_is_the_best_for_what_validates(family: str, tmp_path: Path) -> None:
    """No other threshold between two questions has a higher F1, and it is kept with the model."""
    examples = [without_articles(one) for one in long_ones(24, impossible=True)]
    learned = objective(family, examples, 32)
    model = model_of(family)
    assert learned.options.tau is None
    learned.on_train_end(model, objective(family, examples, 32, split="valid", impossible="yes"))
    tau = learned.options.tau
    assert tau is not None and tau != 0.0

    def mean(tau: float) -> float:
        made = objective(family, examples, 32, split="test", impossible="yes", tau=tau)
        said = predicted(made, model)
        return sum(f1(gold, one.value) for gold, one in zip(examples, said, strict=True)) / 24

    plain = objective(family, examples, 32, split="test", impossible="yes")
    nulls = sorted(one.scores["null"] for one in predicted(plain, model))
    between = [nulls[0] - 1, *((a + b) / 2 for a, b in pairwise(nulls)), nulls[-1] + 1]
    assert mean(tau) == pytest.approx(max(map(mean, between)))
    assert mean(tau) > mean(0.0)
    learned.save_extras(model, tmp_path)
    assert json.loads((tmp_path / "task.json").read_text())["objective"]["tau"] == tau


def test_a_threshold_that_nothing_can_choose() -> None:
    """One that is given stays; so does none where nothing may be refused or nothing compared."""
    examples, model = long_ones(6, impossible=True), model_of("bert")
    valid = objective("bert", examples, 32, split="valid")
    given_ = objective("bert", examples, 32, tau=0.5)
    given_.on_train_end(model, valid)
    assert given_.options.tau == 0.5
    possible = long_ones(6)
    for made, other in (
        (objective("bert", examples, 32), None),
        (objective("bert", examples, 32), objective("bert", possible, 32, split="valid",
                                                    impossible="yes")),
        (objective("bert", possible, 32), valid),
    ):  # fmt: skip
        made.on_train_end(model, other)
        assert made.options.tau is None


@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_plain_and_inside_of_the_passage(family: str) -> None:
    examples = [*long_ones(6), asked("a b c d e f g h i j a b", impossible=True)]
    made = objective(family, examples, 14, split="valid")
    found = predicted(made, model_of(family))
    assert len(found) == len(examples)
    json.dumps([one._asdict() for one in found])
    for example, one in zip(examples, found, strict=True):
        candidates = one.scores["candidates"]
        assert candidates
        assert one.value in ("", candidates[0][0])
        for text, begin, end, _ in candidates:
            assert example.passage[begin:end] == text
        chances = [chance for *_, chance in candidates]
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) < 1


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_do_not_change_answers(family: str) -> None:
    """Rows alone say what they say among others, padded."""
    made = objective(family, long_ones(6), 14, split="valid", impossible="yes")
    model = model_of(family, torch.float64)
    alone = []
    for i in range(len(made)):
        with torch.no_grad():
            alone += made.predict(model, made.collate([made.sample(0, i)]))
    for one, other in zip(made.merge(alone), predicted(made, model), strict=True):
        assert one.value == other.value
        assert one.score == pytest.approx(other.score)


def test_shortest_and_longest_answers() -> None:
    made = objective("bert", long_ones(6), 24, split="valid", answer=1)
    for one in predicted(made, model_of("bert")):
        assert all(len(text) == 1 for text, *_ in one.scores["candidates"])


def test_chinese_passage() -> None:
    """Characters, not words: offsets are those of the passage, without spaces."""
    example = asked("北京在中国，世界 你好", ("中国", 3), question="北京在哪里")
    made = objective("bert", [example], 24)
    batch = batch_of(made)
    found = words(batch["tokens"][0, int(batch["start"]) : int(batch["end"]) + 1])
    assert found == "中 国"
    place = int(batch["start"])
    tested = objective("bert", [example], 24, split="test")
    (one,) = tested.merge([WindowAnswers([1.0], [place], [place + 1], None, True)])
    assert one.value == "中国"
    assert one.scores["candidates"][0][1:3] == (3, 5)


def test_directory_of_others(tmp_path: Path) -> None:
    """BertForQuestionAnswering as transformers saves it has no task.json."""
    model = model_of("bert")
    other = published(model, tmp_path / "made", "BertForQuestionAnswering").float()
    other.save_pretrained(tmp_path / "theirs")
    TOKENIZER.save(tmp_path / "theirs")
    predictor = Predictor(regard.load(tmp_path / "theirs"))
    assert (predictor.task, predictor.length) == ("answer", 40)
    examples = long_ones(4)
    found = predictor(examples)
    same = predicted(objective("bert", examples, 40, split="test", stride=0), model)
    assert [one.value for one in found] == [one.value for one in same]
    assert all(one.value for one in found)


def test_xlnet_with_the_head_of_bert(tmp_path: Path) -> None:
    """XLNetForQuestionAnsweringSimple, the class that AutoModel chooses."""
    model = model_of("xlnet", answer=2)
    save(model, tmp_path, TOKENIZER)
    found = Predictor(regard.load(tmp_path))(long_ones(3))
    ours = predicted(objective("xlnet", long_ones(3), 512, split="test", stride=0), model)
    assert [one.value for one in found] == [one.value for one in ours]


# -- what a model lacks


def plain() -> Tokenizer:
    """A GPT's: letters, and one token that ends a text."""
    letters = {word: i for i, word in enumerate(["<|endoftext|>", *"abcdefqr"])}
    fast = Fast(models.WordLevel(letters, unk_token="<|endoftext|>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(fast, {"tokenizer.json": fast.to_str().encode()})


def gpt_objective(tokenizer: Tokenizer, length: int, **options: Any) -> AnswerObjective:
    held = TaskCorpus("answer", [SIX], tokenizer, split="train")
    given = AnswerOptions(family="gpt", stride=2, **options)
    return AnswerObjective(held, given, length=length, batch=4, seed=1)  # type: ignore[arg-type]


def test_gpt_learns_new_marks() -> None:
    tokenizer = extended(plain(), "the model", MARKS)
    made = gpt_objective(tokenizer, 9)
    tokens = batch_of(made)["tokens"]
    found = tokenizer.tokens(tokens[0, :9].tolist())
    assert found == "<bos> q r <sep> c d e f <cls>".split()
    model = model_of("gpt")
    small = type(model)(model.config.replace(vocab_size=9), {"answer": 2}).initialize()
    with pytest.raises(InputError, match="outside the vocabulary of 9"):
        small(tokens)
    grown = made.adapt_model(small)
    made.check(grown)
    assert grown.config.vocab_size == 12
    assert torch.isfinite(made.loss(grown, batch_of(made)).sums["answer"])


def test_gpt_without_marks() -> None:
    made = gpt_objective(plain(), 6, marks=False)
    batch = batch_of(made)
    assert plain().tokens(batch["tokens"][0, :6].tolist()) == "q r c d e f".split()
    assert (int(batch["start"]), int(batch["end"]), int(batch["cls"])) == (4, 5, 0)
