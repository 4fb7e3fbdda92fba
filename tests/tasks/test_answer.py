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
from tests.refusals import refuses
from tests.tasks.answers import (
    FAMILIES,
    PAD,
    SIX,
    TOKENIZER,
    batch_of,
    long_ones,
    model_of,
    predicted,
    published,
    question_of,
    words,
)
from tests.tasks.answers import (
    objective as objective_of,
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
    objective = objective_of(family, [SIX], length)
    assert objective.options.impossible == "no"
    assert len(objective) == 1
    batch = batch_of(objective)
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
    every = objective_of(family, [SIX], length, split="valid")
    assert [len(every), *batch_of(every)["known"].tolist()] == [2, False, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_impossible_questions_point_to_cls(family: str) -> None:
    """One of them among the data, and every window is learned from."""
    none = question_of("a b", impossible=True)
    objective = objective_of(family, [SIX, none], 10)
    assert objective.options.impossible == "yes"
    batch = batch_of(objective)
    assert len(objective) == 3
    assert ((batch["start"] == batch["cls"]) == torch.tensor([True, False, True])).all()
    without = objective_of(family, [SIX, none], 10, impossible="no")
    assert len(without) == 1
    assert "1 questions of the train data have no answer in their passage" in without.note


def test_padding_stands_on_the_right() -> None:
    batch = batch_of(objective_of("xlnet", [SIX, question_of("a", ("a", 0))], 12, stride=3))
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
        examples.append(question_of(text, (text[2 * first : 2 * last + 1], 2 * first)))
    examples.append(question_of("a", ("a", 0)))  # so that one is always learned
    refuse = data.draw(st.booleans())
    length = data.draw(st.integers(9, 20))
    layout = replace(CARDS[family].passage_format, length=length, stride=stride)
    special = TaskCorpus("answer", examples, TOKENIZER).special
    reads = [read for read, _ in cuts(examples, TOKENIZER, special, layout)]
    objective = objective_of(
        family, examples, length, stride=stride, impossible="yes" if refuse else "no"
    )
    batch = batch_of(objective)
    expected = collate(to_learn(reads, refuse=refuse), PAD, layout.beyond, batch["tokens"].size(1))
    assert torch.equal(batch.pop("tokens"), torch.from_numpy(expected.pop("ids")))
    for name, value in expected.items():
        if name != "segments" or objective.frame.segments:
            assert torch.equal(batch[name], torch.from_numpy(value)), name


def test_answers_not_found_are_told_and_skipped() -> None:
    wrong = [question_of("a b c", ("z" * n, 2)) for n in range(1, 6)]
    second = question_of("a b c", ("c", 0), ("b", 2))  # another answer is right
    objective = objective_of("bert", [SIX, *wrong, second])
    assert len(objective) == 2
    assert "6 answers of the train data were not found and are skipped" in objective.note
    assert "squad.json:7: one: the answer 'zz' is not at character 2" in objective.note
    assert "'zzzz'" not in objective.note  # a few will do
    assert "5 questions of the train data have no known answer" in objective.note
    with refuses(InputError, "5 questions", "5 answers", "train"):
        objective_of("bert", wrong)


def test_notes_of_what_is_long() -> None:
    long = question_of("a b c", ("b", 2), question="q r q r")
    objective = objective_of("bert", [SIX, long], question=2)
    assert "1 of 2 questions of the train data do not fit 9 tokens" in objective.note
    assert "read in 2 windows" in objective.note
    assert "1 questions of the train data have more than 2 tokens and were cut" in objective.note
    whole = question_of("a b c d e f", ("a b c d e", 0))
    assert "1 questions of the train data have an answer that no window of 9 tokens holds" in (
        objective_of("bert", [SIX, whole]).note
    )
    assert objective_of("bert", [SIX], 16).note == ""


@pytest.mark.parametrize(
    ("family", "options", "named"),
    [
        ("transformer-xl", {}, "transformer-xl, answer, bert, xlnet, longformer"),
        ("bert", {"impossible": "maybe"}, "impossible is 'maybe', auto"),
        ("bert", {"stride": -1}, "stride is -1"),
        ("bert", {"marks": False}, "bert, marks, gpt"),
    ],
)
def test_bad_options(family: str, options: dict[str, Any], named: str) -> None:
    with refuses(ConfigError, *named.split(", ")):
        objective_of(family, [SIX], **options)


def test_a_model_without_a_head_for_answers() -> None:
    with refuses(ConfigError, "head", "answers"):
        objective_of("bert", [SIX]).check(model_of("bert", classify=2))


def test_what_the_data_to_learn_from_decides() -> None:
    none = question_of("a b", impossible=True)
    assert objective_of("bert", [SIX, none], 16).settled() == {"impossible": "yes"}
    settled = objective_of("bert", [SIX], 16).settled()
    assert settled == {"impossible": "no"}
    valid = objective_of("bert", [SIX, none], 16, split="valid", **settled)
    assert not valid.refuse and batch_of(valid)["known"].tolist() == [True, False]
    # a test does not decide whether to refuse
    assert objective_of("bert", [none], split="test").options.impossible == "no"


# -- answers


def test_windows_are_merged() -> None:
    """The second window of the first question has the best span; positions are its own."""
    objective = objective_of("bert", [SIX, question_of("a b", ("b", 2))], split="valid")
    assert len(objective) == 3
    predictions = objective.merge(
        [
            WindowAnswers([2.0, 1.0], [4, 5], [5, 5], None, True),  # a b, b
            WindowAnswers([3.0, 2.0], [6, 5], [7, 5], None, True),  # e f, d
            WindowAnswers([1.0, -math.inf], [5, 0], [5, 0], None, True),  # b
        ]
    )
    assert [one.value for one in predictions] == ["e f", "b"]
    (best, begin, end, chance), *others = predictions[0].scores["candidates"]
    assert (best, begin, end) == ("e f", 8, 11)
    assert [text for text, *_ in others] == ["a b", "d", "b"]
    total = sum(math.exp(score) for score in (3, 2, 2, 1))
    assert predictions[0].score == chance == pytest.approx(math.exp(3) / total)
    assert predictions[0].scores["null"] is None
    assert predictions[1].score == 1.0


@pytest.mark.parametrize(("tau", "value"), [(0.0, ""), (1.5, "e f")])
def test_no_answer(tau: float, value: str) -> None:
    """The least null score of the windows, 4, beats the best span by 1."""
    objective = objective_of("bert", [SIX], split="valid", impossible="yes", tau=tau)
    rows = [WindowAnswers([2.0], [4], [5], 4.0, True), WindowAnswers([3.0], [6], [7], 6.0, True)]
    (prediction,) = objective.merge(rows)
    assert prediction.value == value
    assert prediction.scores["null"] == pytest.approx(1.0)
    chances = [math.exp(x) / sum(math.exp(y) for y in (2, 3, 4)) for x in (2, 3, 4)]
    assert prediction.score == pytest.approx(chances[1 if value else 2])


@pytest.mark.parametrize(("tau", "value"), [(0.0, ""), (1.0, "e f")])
def test_no_answer_of_xlnet(tau: float, value: str) -> None:
    """Its logit stands alone: 0.5, a probability of 0.62."""
    objective = objective_of("xlnet", [SIX], split="valid", impossible="yes", tau=tau)
    rows = [
        WindowAnswers([-1.0], [0], [1], 2.0, False),
        WindowAnswers([-1.0], [2], [3], 0.5, False),
    ]
    (prediction,) = objective.merge(rows)
    none = 1 / (1 + math.exp(-0.5))
    assert prediction.value == ("a b" if value else "")  # the first of equals
    assert prediction.scores["null"] == 0.5
    assert prediction.score == pytest.approx((1 - none) / 2 if value else none)


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
    learned = objective_of(family, examples, 32)
    model = model_of(family)
    assert learned.options.tau is None
    learned.on_train_end(model, objective_of(family, examples, 32, split="valid", impossible="yes"))
    tau = learned.options.tau
    assert tau is not None and tau != 0.0

    def mean(tau: float) -> float:
        objective = objective_of(family, examples, 32, split="test", impossible="yes", tau=tau)
        predictions = predicted(objective, model)
        pairs = zip(examples, predictions, strict=True)
        return sum(f1(gold, one.value) for gold, one in pairs) / 24

    plain = objective_of(family, examples, 32, split="test", impossible="yes")
    nulls = sorted(one.scores["null"] for one in predicted(plain, model))
    between = [nulls[0] - 1, *((a + b) / 2 for a, b in pairwise(nulls)), nulls[-1] + 1]
    assert mean(tau) == pytest.approx(max(map(mean, between)))
    assert mean(tau) > mean(0.0)
    learned.save_extras(model, tmp_path)
    assert json.loads((tmp_path / "task.json").read_text())["objective"]["tau"] == tau


def test_a_threshold_that_nothing_can_choose() -> None:
    """One that is given stays; so does none where nothing may be refused or nothing compared."""
    examples, model = long_ones(6, impossible=True), model_of("bert")
    valid = objective_of("bert", examples, 32, split="valid")
    given_ = objective_of("bert", examples, 32, tau=0.5)
    given_.on_train_end(model, valid)
    assert given_.options.tau == 0.5
    possible = long_ones(6)
    for objective, other in (
        (objective_of("bert", examples, 32), None),
        (objective_of("bert", examples, 32), objective_of("bert", possible, 32, split="valid",
                                                    impossible="yes")),
        (objective_of("bert", possible, 32), valid),
    ):  # fmt: skip
        objective.on_train_end(model, other)
        assert objective.options.tau is None


@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_plain_and_inside_of_the_passage(family: str) -> None:
    examples = [*long_ones(6), question_of("a b c d e f g h i j a b", impossible=True)]
    objective = objective_of(family, examples, 14, split="valid")
    predictions = predicted(objective, model_of(family))
    assert len(predictions) == len(examples)
    json.dumps([one._asdict() for one in predictions])
    for example, one in zip(examples, predictions, strict=True):
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
    objective = objective_of(family, long_ones(6), 14, split="valid", impossible="yes")
    model = model_of(family, torch.float64)
    alone = []
    for i in range(len(objective)):
        with torch.no_grad():
            alone += objective.predict(model, objective.collate([objective.sample(0, i)]))
    for one, other in zip(objective.merge(alone), predicted(objective, model), strict=True):
        assert one.value == other.value
        assert one.score == pytest.approx(other.score)


def test_shortest_and_longest_answers() -> None:
    objective = objective_of("bert", long_ones(6), 24, split="valid", answer=1)
    for one in predicted(objective, model_of("bert")):
        assert all(len(text) == 1 for text, *_ in one.scores["candidates"])


def test_chinese_passage() -> None:
    """Characters, not words: offsets are those of the passage, without spaces."""
    example = question_of("北京在中国，世界 你好", ("中国", 3), question="北京在哪里")
    objective = objective_of("bert", [example], 24)
    batch = batch_of(objective)
    answer = words(batch["tokens"][0, int(batch["start"]) : int(batch["end"]) + 1])
    assert answer == "中 国"
    place = int(batch["start"])
    tested = objective_of("bert", [example], 24, split="test")
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
    predictions = predictor(examples)
    same = predicted(objective_of("bert", examples, 40, split="test", stride=0), model)
    assert [one.value for one in predictions] == [one.value for one in same]
    assert all(one.value for one in predictions)


def test_xlnet_with_the_head_of_bert(tmp_path: Path) -> None:
    """XLNetForQuestionAnsweringSimple, the class that AutoModel chooses."""
    model = model_of("xlnet", answer=2)
    save(model, tmp_path, TOKENIZER)
    predictions = Predictor(regard.load(tmp_path))(long_ones(3))
    ours = predicted(objective_of("xlnet", long_ones(3), 512, split="test", stride=0), model)
    assert [one.value for one in predictions] == [one.value for one in ours]


# -- what a model lacks


def plain() -> Tokenizer:
    """A GPT's: letters, and one token that ends a text."""
    letters = {word: i for i, word in enumerate(["<|endoftext|>", *"abcdefqr"])}
    fast = Fast(models.WordLevel(letters, unk_token="<|endoftext|>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(fast, {"tokenizer.json": fast.to_str().encode()})


def gpt_objective(tokenizer: Tokenizer, length: int, **options: Any) -> AnswerObjective:
    corpus = TaskCorpus("answer", [SIX], tokenizer, split="train")
    settings = AnswerOptions(family="gpt", stride=2, **options)
    return AnswerObjective(corpus, settings, seq_len=length, batch_size=4, seed=1)  # type: ignore[arg-type]


def test_gpt_learns_new_marks() -> None:
    tokenizer = extended(plain(), "the model", MARKS)
    objective = gpt_objective(tokenizer, 9)
    tokens = batch_of(objective)["tokens"]
    answer = tokenizer.tokens(tokens[0, :9].tolist())
    assert answer == "<bos> q r <sep> c d e f <cls>".split()
    model = model_of("gpt")
    small = type(model)(model.config.replace(vocab_size=9), {"answer": 2}).initialize()
    with refuses(InputError, "vocabulary of 9"):
        small(tokens)
    grown = objective.adapt_model(small)
    objective.check(grown)
    assert grown.config.vocab_size == 12
    assert torch.isfinite(objective.loss(grown, batch_of(objective)).sums["answer"])


def test_gpt_without_marks() -> None:
    objective = gpt_objective(plain(), 6, marks=False)
    batch = batch_of(objective)
    assert plain().tokens(batch["tokens"][0, :6].tolist()) == "q r c d e f".split()
    assert (int(batch["start"]), int(batch["end"]), int(batch["cls"])) == (4, 5, 0)
