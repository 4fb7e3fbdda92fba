"""Multiple choice: a row for each choice to the token, losses by hand, learning, and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional as F

from regard.api import load
from regard.core.errors import InputError
from regard.data.examples import MultipleChoice
from regard.data.problems import FileLine
from regard.data.special_tokens import special_of
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.tasks.choose import ASKED, Choose
from tests.tasks import tuning
from tests.tasks.judging import (
    CLS,
    FAMILIES,
    SEP,
    START,
    batch_of,
    build,
    examples,
    ids,
    learn,
    model_of,
    said,
    some_words,
    tokenizer,
    write,
)

transformers.logging.set_verbosity_error()

ABLE = pytest.mark.parametrize("family", FAMILIES)
UNEVEN = [
    MultipleChoice("a b", ("c", "d e"), label=1),
    MultipleChoice("f", ("g h i", "j", "k", "l"), label=2),
    MultipleChoice("a", ("b",), label=0),
]


def chosen(family: str, given: Any = UNEVEN, split: str = "train", **options: Any) -> Any:
    return build(Choose, family, examples("choose", given, (), split), **options)


# --- rows -------------------------------------------------------------------------------------


def test_every_choice_as_each_paper_frames_it() -> None:
    a, both = ids("a b"), (ids("c"), ids("d e"))
    wanted = {
        "bert": ([[CLS, *a, SEP, *x, SEP] for x in both], "0000110000111"),
        "longformer": ([[CLS, *a, SEP, SEP, *x, SEP] for x in both], "0" * 15),
        "xlnet": ([[*a, SEP, *x, SEP, CLS] for x in both], "0001120001112"),
        "gpt": ([[START, *a, SEP, *x, CLS] for x in both], "0" * 13),
    }
    for family, (rows, segments) in wanted.items():
        sample = chosen(family).sample(0, 0)
        assert sample["tokens"].tolist() == [i for row in rows for i in row], family
        assert sample["lengths"].tolist() == [len(row) for row in rows]
        assert "".join(map(str, sample["segments"])) == segments, family
        batch = batch_of(chosen(family))
        for row, tokens, attention_mask in zip(
            rows, batch["tokens"], batch["attention_mask"], strict=False
        ):
            assert tokens[attention_mask].tolist() == row


def rows_of(made: Any, index: int = 0) -> list[list[int]]:
    batch = made.collate([made.sample(0, index)])
    return [
        row[attention_mask].tolist()
        for row, attention_mask in zip(batch["tokens"], batch["attention_mask"], strict=True)
    ]


def test_where_the_question_stands() -> None:
    """Encoders read it with the choice (run_race.py of zihangdai/xlnet), GPT-1 with the premise."""
    given = [
        MultipleChoice("a b", ("c", "d"), asks=asks, label=0)
        for asks in ("cause", "EFFECT", "was this?")
    ]
    for i, words in enumerate([ASKED["cause"], ASKED["effect"], "was this?"]):
        premise, asked, choice = ids("a b"), ids(words), ids("d")
        wanted = {
            "bert": [CLS, *premise, SEP, *asked, *choice, SEP],
            "longformer": [CLS, *premise, SEP, SEP, *asked, *choice, SEP],
            "xlnet": [*premise, SEP, *asked, *choice, SEP, CLS],
            "gpt": [START, *premise, *asked, SEP, *choice, CLS],
        }
        for family, row in wanted.items():
            assert rows_of(chosen(family, given), i)[1] == row, family


def test_a_choice_fills_the_gap_of_its_question() -> None:
    given = [MultipleChoice("a", ("c", "d e"), asks="was _ this?", label=0)]
    assert rows_of(chosen("xlnet", given)) == [
        [*ids("a"), SEP, *ids(f"was {choice} this?"), SEP, CLS] for choice in ("c", "d e")
    ]


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_long_premise_is_cut_but_not_the_question(family: str) -> None:
    given = [MultipleChoice("a b c d e f g h i j", ("k", "l l l"), asks="cause", label=0)]
    made = chosen(family, given, length=14)
    question = ids(ASKED["cause"])
    assert len(question) == 6
    left, right = ids("a b c d"), ids("a b")
    wanted = {
        "bert": [
            [CLS, *left, SEP, *question, *ids("k"), SEP],
            [CLS, *right, SEP, *question, *ids("l l l"), SEP],
        ],
        "gpt": [
            [START, *left, *question, SEP, *ids("k"), CLS],
            [START, *right, *question, SEP, *ids("l l l"), CLS],
        ],
    }
    assert rows_of(made) == wanted[family]
    assert made.note == "1 of 1 texts of the train data have more than 14 tokens and were cut"
    shorter = chosen(family, given, length=8)
    assert batch_of(shorter)["attention_mask"].sum(1).tolist() == [8, 8]
    if family == "bert":  # the choice stands last, and stays
        assert rows_of(shorter)[1] == [CLS, SEP, *ids("of this? l l l"), SEP]
        endless = [MultipleChoice("a", (" ".join("k" * 200), "l"), asks="cause", label=0)]
        assert [len(row) for row in rows_of(chosen("bert", endless, length=300))] == [132, 11]


def test_without_a_question_the_longer_text_is_cut() -> None:
    given = [MultipleChoice("a b c d e f", ("g", "h i j k l"), label=0)]
    assert rows_of(chosen("bert", given, length=9))[1] == [
        CLS, *ids("a b c"), SEP, *ids("h i j"), SEP,
    ]  # fmt: skip


def test_rows_of_a_sample_find_together_again() -> None:
    batch = batch_of(chosen("gpt"))
    assert batch["held"].tolist() == [[True, True, False, False], [True] * 4, [True] + [False] * 3]
    assert batch["rows"][batch["held"]].tolist() == list(range(7))
    assert batch["tokens"].size(0) == 7 and batch["gold"].tolist() == [1, 2, 0]


def test_sizes() -> None:
    """The rows of a sample stand together in memory, but a model reads each by itself."""
    made = chosen("bert")
    assert (made.max_len, made.longest) == (22, 7)  # [CLS] f [SEP] g h i [SEP] and three of 5
    made.check(model_of("bert", made.heads(), context=7))


# --- losses -----------------------------------------------------------------------------------


@ABLE
@torch.no_grad()
def test_the_loss_by_hand_with_as_many_choices_as_there_are(family: str) -> None:
    made = chosen(family)
    model, batch = model_of(family, made.heads(), torch.float64), batch_of(made)
    found = made.loss(model, batch)
    by_hand, right = 0.0, 0
    for i, example in enumerate(UNEVEN):
        alone = made.collate([made.sample(0, i)])
        scores = model.read("choose", made.hidden(model, alone), alone["attention_mask"])[:, 0]
        assert scores.shape == (len(example.choices),)
        by_hand += float(F.cross_entropy(scores[None], torch.tensor([example.label])))
        right += int(scores.argmax()) == example.label
    assert float(found.sums["choose"]) == pytest.approx(by_hand, rel=1e-9)
    assert found.counts["choose"] == 3.0 and float(found.seen["right"][0]) == right
    assert found.counts == made.counts(batch)
    assert ("language" in found.sums) == (family == "gpt")


@torch.no_grad()
def test_the_second_loss_runs_over_all_choices() -> None:
    made = chosen("gpt")
    model, batch = model_of("gpt", made.heads(), torch.float64), batch_of(made)
    found = made.loss(model, batch)
    wanted = 0.0
    for tokens, attention_mask in zip(batch["tokens"], batch["attention_mask"], strict=True):
        row = tokens[attention_mask]
        wanted += float(F.cross_entropy(model.logits(model(row[None]))[0, :-1], row[1:]))
    assert float(found.sums["language"]) == pytest.approx(wanted, rel=1e-9)
    assert found.counts["language"] == 7.0 and made.weights == {"language": 0.5}


def test_gradients_of_uneven_choices_are_numbers() -> None:
    made = chosen("bert")
    model = model_of("bert", made.heads(), torch.float64)
    made.loss(model, batch_of(made)).sums["choose"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert float(model.heads["choose"].out.weight.grad.abs().max()) > 0


# --- learning and answers ---------------------------------------------------------------------


def puzzles(count: int, seed: int) -> list[MultipleChoice]:
    """Of two or three choices the one with the word "a" is right."""
    made = []
    for i in range(count):
        right = i % (2 + i % 2)
        choices = [some_words(2, "w", seed, i, k) for k in range(2 + i % 2)]
        choices[right] = f"a {some_words(1, 'r', seed, i)}"
        made.append(MultipleChoice(some_words(2, "p", seed, i), tuple(choices), label=right))
    return made


@ABLE
def test_it_learns(family: str) -> None:
    made = chosen(family, puzzles(64, 0))
    model = model_of(family, made.heads())
    learn(made, model, steps=50)
    unseen = chosen(family, puzzles(32, 1), "test")
    found = said(unseen, model)
    gold = [example.label for example in unseen.corpus.examples]
    assert sum(p.value == g for p, g in zip(found, gold, strict=True)) >= 30
    assert [len(p.scores) for p in found] == [2, 3] * 16
    assert all(sum(p.scores) == pytest.approx(1) for p in found)
    assert all(p.score == max(p.scores) == p.scores[p.value] for p in found)


def test_a_saved_run_chooses_as_their_classes_do(tmp_path: Path) -> None:
    """COPA's own layout, with a gpt whose tokenizer has no marks."""
    plain = tokenizer(("unk", "eos"))
    save(model_of("gpt", {}, vocab_size=len(plain)), tmp_path / "model", plain)
    rows = [
        {"premise": e.premise, "choice1": e.choices[0], "choice2": e.choices[1],
         "question": "cause", "label": e.label}
        for e in puzzles(120, 0) if len(e.choices) == 2
    ]  # fmt: skip
    data = write(tmp_path / "data.jsonl", rows)
    recipe = tuning.recipe(
        tmp_path / "model", data, examples={"task": "choose"}, batch={"seq_len": 20},
        budget={"steps": 40},
    )  # fmt: skip
    facts = finetune(recipe, tmp_path / "run", display="silent")
    assert facts["valid"]["accuracy"] > 0.8
    loaded = load(tmp_path / "run")
    assert loaded.source["architectures"] == ["GPT2DoubleHeadsModel"]
    assert loaded.tokenizer is not None
    special = special_of(loaded.tokenizer, "run")
    theirs = transformers.GPT2DoubleHeadsModel.from_pretrained(tmp_path / "run").eval()
    given = [MultipleChoice(e.premise, e.choices, "cause") for e in puzzles(20, 3)]
    for example, answer in zip(given, Predictor(loaded)(given), strict=True):
        stem = plain.encode(f"{example.premise} {ASKED['cause']}")
        scores = []
        for choice in example.choices:
            row = [special.need("start"), *stem, special.need("sep"), *plain.encode(choice),
                   special.need("cls")]  # fmt: skip
            with torch.no_grad():
                scores.append(float(theirs(torch.tensor([[row]])).mc_logits))
        shares = torch.tensor(scores).softmax(0)
        assert answer.value == int(shares.argmax())
        assert answer.scores == pytest.approx(shares.tolist(), abs=1e-5)


@torch.no_grad()
def test_bert_chooses_as_their_class_does(tmp_path: Path) -> None:
    made = chosen("bert", split="test")
    model = model_of("bert", made.heads())
    save(model, tmp_path)
    theirs = transformers.BertForMultipleChoice.from_pretrained(tmp_path).eval()
    for i, answer in enumerate(said(made, model)):
        batch = made.collate([made.sample(0, i)])
        logits = theirs(batch["tokens"][None], attention_mask=batch["attention_mask"][None].long(),
                        token_type_ids=batch["segments"][None]).logits[0]  # fmt: skip
        assert answer.scores == pytest.approx(logits.softmax(0).tolist(), abs=1e-5)
        assert answer.value == int(logits.argmax())


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(("choices", "label"), [((), None), (("a",), 1), (("a", "b"), -1)])
def test_labels_that_point_nowhere(choices: tuple[str, ...], label: int | None) -> None:
    given = [MultipleChoice("a", choices, label=label, place=FileLine("copa.jsonl", 4))]
    with pytest.raises(InputError, match=rf"copa\.jsonl:4: of {len(choices)} choices"):
        chosen("bert", given)


def test_no_labels_to_learn_from() -> None:
    with pytest.raises(InputError, match="none of the examples of the train data has a label"):
        chosen("bert", [MultipleChoice("a", ("b", "c"))])
    assert len(chosen("bert", [MultipleChoice("a", ("b", "c"))], "test")) == 1


@torch.no_grad()
def test_empty_premises_and_choices_are_only_marks() -> None:
    for family in FAMILIES:
        made = chosen(family, [MultipleChoice("", ("", "a"))], "test")
        found = said(made, model_of(family, made.heads()))
        assert sum(found[0].scores) == pytest.approx(1)
