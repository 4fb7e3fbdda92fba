"""Demonstrations, scores and answers of models that are asked by prompts."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import LoadedModel
from regard.core.errors import ConfigError, InputError
from regard.data.examples import (
    AnswerSpan,
    DialogueExample,
    Example,
    LabeledExample,
    MultipleChoice,
    Question,
    TextPair,
)
from regard.data.vocabulary import train
from regard.evaluation.demonstrations import DemonstrationPool
from regard.evaluation.likelihood import LikelihoodRequest
from regard.evaluation.prompting import evaluate, score
from regard.formats.directory import save
from regard.models.gpt import GPT, GPTConfig
from regard.tasks.choose import lowered
from tests.command import run as called
from tests.decoding.small import talking
from tests.evaluation.likelihoods import directly, speaking
from tests.files import Write
from tests.laws.zoo import ZOO
from tests.refusals import mentions, refuses

# -- shots


def labeled(count: int, classes: int = 2) -> list[Example]:
    return [LabeledExample(f"text {i}", None, f"c{i % classes}", id=str(i)) for i in range(count)]


@pytest.mark.parametrize("draw", ["uniform", "balanced"])
@pytest.mark.parametrize("fixed", [False, True])
def test_shots_are_drawn_by_the_seed_and_never_the_example_itself(draw: str, fixed: bool) -> None:
    pool = labeled(12)
    shots = DemonstrationPool(pool, 4, draw, fixed, seed=3)
    demonstrations = [shots.of(i, example) for i, example in enumerate(pool)]
    again = DemonstrationPool(pool, 4, draw, fixed, seed=3)
    assert demonstrations == [again.of(i, example) for i, example in enumerate(pool)]
    other = DemonstrationPool(pool, 4, draw, fixed, seed=4)
    assert demonstrations != [other.of(i, example) for i, example in enumerate(pool)]
    for example, drawn in zip(pool, demonstrations, strict=True):
        assert example not in drawn and len({shot.id for shot in drawn}) == 4
    seen = Counter(tuple(shot.id for shot in drawn) for drawn in demonstrations)
    assert (seen.most_common(1)[0][1] == 8) if fixed else (len(seen) > 8)
    if fixed:  # those among the shots get one other instead of themselves
        usual = set(seen.most_common(1)[0][0])
        assert all(len(usual & {s.id for s in drawn}) >= 3 for drawn in demonstrations)
    fewer = DemonstrationPool(pool, 2, draw, fixed, seed=3)
    assert all(fewer.of(i, e) == demonstrations[i][:2] for i, e in enumerate(pool))


def test_a_balanced_draw_has_as_many_of_each_class() -> None:
    pool = [LabeledExample(f"t{i}", None, "rare" if i < 3 else "often") for i in range(40)]
    shots, uniform = DemonstrationPool(pool, 4, "balanced"), DemonstrationPool(pool, 4)
    for i in range(40):
        assert Counter(shot.label for shot in shots.of(i, pool[i])) == {"rare": 2, "often": 2}  # type: ignore[union-attr]
    drawn = Counter(shot.label for i in range(40) for shot in uniform.of(i, pool[i]))  # type: ignore[union-attr]
    assert drawn["often"] > 5 * drawn["rare"]
    many = DemonstrationPool(pool, 10, "balanced").of(0, pool[0])  # two of the rare are left
    assert Counter(shot.label for shot in many) == {"rare": 2, "often": 8}  # type: ignore[union-attr]


def test_the_same_text_is_never_a_shot_whatever_its_label() -> None:
    pool = [
        LabeledExample("same", None, "a"),
        LabeledExample("same", None, "b"),
        LabeledExample("other", None, "b"),
    ]
    assert [s.text for s in DemonstrationPool(pool, 1).of(0, pool[0])] == ["other"]  # type: ignore[union-attr]
    pairs = [TextPair("cat", "chat"), TextPair("cat", "minou"), TextPair("dog", "chien")]
    assert DemonstrationPool(pairs, 1).of(1, pairs[1]) == [pairs[2]]
    talks = [
        DialogueExample(("Hi.", "Hello.")),
        DialogueExample(("Hi.", "Yes?")),
        DialogueExample(("Bye.", "Bye.")),
    ]
    assert DemonstrationPool(talks, 1).of(0, talks[0]) == [talks[2]]
    with refuses(InputError, "2 demonstrations", " 1 "):
        DemonstrationPool(pool, 2).of(0, pool[0])
    with refuses(ConfigError, "classes"):
        DemonstrationPool(pairs, 1, "balanced")
    assert DemonstrationPool([*pool, LabeledExample("bare")], 2).of(0, LabeledExample("new")) != []
    with refuses(InputError, "3 demonstrations", " 2 "):  # what has no label shows nothing
        DemonstrationPool([*pool, LabeledExample("bare")], 3).of(0, LabeledExample("new"))


def test_shots_come_from_another_file_if_asked() -> None:
    pool = [LabeledExample(f"pool {i}", None, f"c{i % 2}", id=f"p{i}") for i in range(6)]
    report = evaluate(talking(context=256), labeled(4), "classify", pool=pool, shots=2)
    assert {shot for row in report["predictions"] for shot in row["shots"]} <= {e.id for e in pool}
    alone = evaluate(talking(context=256), labeled(4), "classify", shots=2)
    for row in alone["predictions"]:
        assert row["id"] not in row["shots"] and len(row["shots"]) == 2


# -- scores


def test_the_four_scores_by_hand() -> None:
    loaded = talking("bytes-bpe", context=128)
    examples = [
        LabeledExample("the cat sat", None, "pos"),
        LabeledExample("the dog did not", None, "neg"),
    ]
    words = {"neg": "dog", "pos": "the cat"}
    report = evaluate(loaded, examples, "classify", labels=words, score="calibrated")
    for row, example in zip(report["predictions"], examples, strict=True):
        context = f"{example.text}\nQuestion: dog or the cat?\nAnswer:"
        own = score(loaded, [context] * 2, [" dog", " the cat"])
        bare = score(loaded, ["Answer:"] * 2, [" dog", " the cat"])
        expected = {
            "raw": [x.total for x in own],
            "token": [sum(x.logprobs) / len(x.logprobs) for x in own],
            "byte": [own[0].total / 3, own[1].total / 7],
            "calibrated": [x.total - y.total for x, y in zip(own, bare, strict=True)],
        }
        for name, values in expected.items():
            assert list(row["scores"][name].values()) == pytest.approx(values)
            assert row["by"][name] == ("neg" if values[0] > values[1] else "pos")
        assert row["predicted"] == row["by"]["calibrated"]
    right = [row["predicted"] == row["gold"] for row in report["predictions"]]
    assert report["figures"]["accuracy"] == sum(right) / 2
    assert report["by_score"]["calibrated"]["accuracy"] == sum(right) / 2


def test_contextual_calibration_by_hand() -> None:
    """p / p(blank) of probabilities among the labels, the mean of several blanks."""
    loaded = talking("bytes-bpe", context=128)
    examples = [
        LabeledExample("the cat", None, "pos", id="0"),
        LabeledExample("dog", None, "neg", id="1"),
    ]
    report = evaluate(loaded, examples, "classify", shots=1, blank=("N/A", "x"))
    form = "{}\nQuestion: neg or pos?\nAnswer:"

    def among(context: str) -> list[float]:
        both = [math.exp(x) for x in totals(context)]
        return [x / sum(both) for x in both]

    def totals(context: str) -> list[float]:
        return [x.total for x in score(loaded, [context] * 2, [" neg", " pos"])]

    for row, shot in zip(report["predictions"], ("dog", "the cat"), strict=True):
        label = {"dog": "neg", "the cat": "pos"}[shot]
        shown = form.format(shot) + f" {label}\n\n"
        own = totals(shown + form.format({"dog": "the cat", "the cat": "dog"}[shot]))
        free = [among(shown + form.format(blank)) for blank in ("N/A", "x")]
        mean = [sum(column) / 2 for column in zip(*free, strict=True)]
        expected = [p - math.log(q) for p, q in zip(own, mean, strict=True)]
        assert list(row["scores"]["calibrated"].values()) == pytest.approx(expected)


def test_choices_may_be_of_different_number() -> None:
    examples = [
        MultipleChoice("The cat sat.", ("It slept.", "It ran."), "effect", 0, id="a"),
        MultipleChoice("The dog did.", ("It did.", "The cat.", "It sat."), "cause", 2, id="b"),
    ]
    report = evaluate(talking(context=128), examples, "choose", score="byte")
    assert report["chance"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert report["template"] == "{stem} {link} {ending}"
    row = report["predictions"][1]
    totals = score(talking(context=128), ["The dog did because"] * 3,
                   [" it did.", " the cat.", " it sat."])  # fmt: skip
    assert list(row["scores"]["byte"].values()) == pytest.approx([x.per_byte for x in totals])
    assert row["predicted"] == max(range(3), key=lambda i: totals[i].per_byte)


def test_baselines_and_intervals() -> None:
    examples = [LabeledExample(f"t {i}", None, "a" if i < 7 else "b") for i in range(10)]
    words = {"a": "cat", "b": "naïve café"}  # raw prefers the short one, byte the long one
    report = evaluate(talking(context=128), examples, "classify", labels=words, resamples=50)
    assert report["most_frequent"] == {"label": "a", "accuracy": 0.7}
    assert report["chance"] == 0.5
    for name, by in report["by_score"].items():
        right = [row["by"][name] == row["gold"] for row in report["predictions"]]
        assert by["accuracy"] == sum(right) / 10
        low, high = by["interval"]
        assert 0 <= low <= by["accuracy"] <= high <= 1
    assert report["by_score"]["token"]["accuracy"] == report["figures"]["accuracy"]
    assert [report["by_score"][name]["accuracy"] for name in ("raw", "byte")] == [0.7, 0.3]
    assert json.loads(json.dumps(report))["chance"] == 0.5
    few = evaluate(talking(context=128), examples, "classify", labels=words, limit=8, seed=1)
    assert few["examples"] == 8
    all_of_them = {row["number"]: row["scores"]["raw"] for row in report["predictions"]}
    for row in few["predictions"]:
        assert row["scores"]["raw"] == pytest.approx(all_of_them[row["number"]])


# -- too long


def test_shots_that_do_not_fit_are_left_out_from_the_front() -> None:
    examples = labeled(6)
    loaded = talking("bytes-bpe", context=90)
    report = evaluate(loaded, examples, "classify", shots=4)
    free = evaluate(talking("bytes-bpe", context=512), examples, "classify", shots=4)
    gone = 0
    for row, whole in zip(report["predictions"], free["predictions"], strict=True):
        shown = len(row["shots"])
        assert 0 < shown < 4 and row["shots"] == whole["shots"][-shown:]
        gone += 4 - shown
    assert (report["dropped_shots"], report["shortened"], report["cut"]) == (gone, 6, 0)
    assert len(report["notes"]) == 1 and f"{gone} demonstrations" in report["notes"][0]
    assert free["notes"] == []
    short = evaluate(loaded, examples, "classify", shots=1, length=12)
    assert short["cut"] == 6 and short["dropped_shots"] == 6
    assert "without demonstrations" in short["notes"][1]


def test_an_open_answer_leaves_room_for_itself() -> None:
    pairs: list[Example] = [TextPair(f"the cat {i}", f"die Katze {i}", id=str(i)) for i in range(5)]
    report = evaluate(talking(context=48), pairs, "translate", shots=3, max_new_tokens=8)
    assert report["dropped_shots"] > 0 and report["cut"] == 0
    report = evaluate(talking(context=12), pairs, "translate", shots=1, max_new_tokens=8)
    assert report["cut"] == 5
    with refuses(ConfigError, "12 tokens"):
        evaluate(talking(context=12), pairs, "translate", max_new_tokens=12)


# -- a model that must be right

WORTH = {"fine": "pos", "lovely": "pos", "bright": "pos", "dull": "neg", "awful": "neg",
         "grey": "neg"}  # fmt: skip
FRENCH = {"cat": "chat", "dog": "chien", "sun": "soleil", "sea": "mer"}
REASONS = {
    "Tom is wet.": ("It rained.", "It was dry."),
    "Ann slept.": ("She was tired.", "It ran."),
}


def reviews() -> list[Example]:
    return [LabeledExample(f"a {w} film", None, label, id=w) for w, label in WORTH.items()]


def pairs() -> list[Example]:
    return [TextPair(word, other, id=word) for word, other in FRENCH.items()]


def reasons() -> list[Example]:
    return [MultipleChoice(p, c, "cause", 0, id=p) for p, c in REASONS.items()]


def questions() -> list[Example]:
    return [
        Question("who ran?", "Tom ran.", (AnswerSpan("Tom", 0),), id="1"),
        Question("who swam?", "Tom ran.", (), True, id="2"),
    ]


@cache
def taught() -> LoadedModel:
    """A GPT that has learned the right answers to four tasks by heart, in their usual templates."""
    texts = [f"{e.text}\nQuestion: neg or pos?\nAnswer: {e.label}\n" for e in reviews()]  # type: ignore[union-attr]
    texts += [f"{word} = {other}\n" for word, other in FRENCH.items()]
    texts += [f"{p[:-1]} because {lowered(c[0])}\n" for p, c in REASONS.items()]
    texts += ["Tom ran.\nQ: who ran?\nA: Tom\n", "Tom ran.\nQ: who swam?\nA: unanswerable\n"]
    words = train("bytes-bpe", texts, vocab_size=None, lower=None, marks=0)
    rows = [words.encode(text, special=False) for text in texts]
    torch.manual_seed(0)
    config = GPTConfig(len(words), context=96, width=32, layers=2, heads=2, dropout=0.0,
                       dropout_attention=0.0, dropout_embedding=0.0)  # fmt: skip
    model = GPT(config).initialize()
    table = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], True)
    attention_mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(r)) for r in rows], True)[
        :, 1:
    ].bool()
    steps = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(120):
        loss = (
            model.output.surprisal(
                model(table[:, :-1])[attention_mask], table[:, 1:][attention_mask]
            )
            / attention_mask.sum()
        )
        steps.zero_grad()
        loss.backward()
        steps.step()
    return LoadedModel(model.eval(), words)


def test_a_model_that_knows_the_answers_is_right() -> None:
    report = evaluate(taught(), reviews(), "classify")
    assert report["figures"]["accuracy"] == 1.0
    assert {name: by["accuracy"] for name, by in report["by_score"].items()} == dict.fromkeys(
        ("raw", "token", "byte", "calibrated"), 1.0
    )
    assert report["worst"] == [] and report["most_frequent"]["accuracy"] == 0.5
    wrong = evaluate(taught(), reviews(), "classify", labels={"pos": "neg", "neg": "pos"})
    assert wrong["figures"]["accuracy"] == 0.0
    assert evaluate(taught(), reasons(), "choose")["figures"]["accuracy"] == 1.0


def test_open_answers_end_at_the_line() -> None:
    report = evaluate(taught(), pairs(), "translate", max_new_tokens=8)
    assert [row["predicted"] for row in report["predictions"]] == list(FRENCH.values())
    assert report["figures"]["chrf"] == pytest.approx(100.0) and "by_score" not in report
    report = evaluate(taught(), questions(), "answer", max_new_tokens=12)
    assert [row["predicted"] for row in report["predictions"]] == ["Tom", ""]
    assert report["figures"]["exact_match"] == 1.0


def test_the_language_of_answers_is_seen_by_their_letters() -> None:
    chinese: list[Example] = [TextPair("cat", "一只猫"), TextPair("dog", "一条狗")]
    for language, wanted in (("", "zh"), ("en", "en"), ("zh-CN", "zh-CN")):
        options = {"language": language} if language else {}
        report = evaluate(taught(), chinese, "translate", max_new_tokens=4, **options)
        cut = "tok:13a" if wanted == "en" else "tok:zh"
        assert report["language"] == wanted and cut in report["signatures"]["bleu"]
    assert evaluate(taught(), pairs(), "translate", max_new_tokens=4)["language"] == "en"
    assert "language" not in evaluate(taught(), reviews(), "classify")
    with refuses(ConfigError, "language", "'chinese'"):
        evaluate(taught(), chinese, "translate", language="chinese")


def test_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []
    many = [*reviews()] * 15
    whole = evaluate(taught(), many, "classify", watch=lambda *progress: seen.append(progress))
    assert seen == [("asking", 64, 90), ("asking", 90, 90)] and whole["examples"] == 90
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with refuses(InputError, "'sklearn'", "pip install 'regard[tasks]'"):
        evaluate(taught(), many, "classify", watch=lambda *progress: seen.append(progress))
    assert len(seen) == 2


@pytest.mark.parametrize("name", ["t5", "transformer"])
def test_a_decoder_is_asked_for_the_answer_and_its_end(name: str) -> None:
    loaded = speaking(next(s for s in ZOO if s.name == name), "unigram")
    words, end = loaded.tokenizer, loaded.config.eos_id
    assert words is not None
    report = evaluate(loaded, reviews(), "classify", shots=1)
    row = report["predictions"][0]
    shown = next(e for e in reviews() if e.id == row["shots"][0])
    asks = "\nQuestion: neg or pos?\nAnswer:"
    source = f"{shown.text}{asks} {shown.label}\n\na fine film{asks}"  # type: ignore[union-attr]
    for label in ("neg", "pos"):
        target = (*words.encode(label, special=False), end)
        before = words.encode(source, special=True)
        ask = LikelihoodRequest((*before, *[end][: before[-1] != end]), target)
        assert row["scores"]["raw"][label] == pytest.approx(sum(directly(loaded, ask)), abs=1e-8)
    assert evaluate(loaded, pairs(), "translate", max_new_tokens=4)["examples"] == 4


# -- the command


def run(*arguments: object) -> Any:
    return called("evaluate", *arguments, *([] if "--shots" in arguments else ["--shots", 0]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    loaded = taught()
    return save(loaded.model, tmp_path / "model", loaded.tokenizer)


def test_the_command_prints_a_table(model: Path, write: Write) -> None:
    lines = [json.dumps({"text": f"a {w} film", "label": x}) for w, x in WORTH.items()]
    data = write("reviews.jsonl", "\n".join(lines))
    result = run(model, data, "--task", "classify", "--score", "calibrated")
    assert result.exit_code == 0, result.output
    assert "0 demonstrations" in result.output and "neg: 'neg', pos: 'pos'" in result.output
    for start in ("calibrated (decides)       1.0000   1.0000 … 1.0000", "always pos", "chance"):
        assert any(line.startswith(start) for line in result.output.splitlines()), start
    assert "macro_f1" in result.output


def test_the_command_writes_what_was_said(model: Path, write: Write, tmp_path: Path) -> None:
    data = write("words.tsv", "".join(f"{word}\t{other}\n" for word, other in FRENCH.items()))
    out = tmp_path / "out"
    result = run(
        model, data, "--task", "translate", "--shots", 1, "--template", "{source} = {target}",
        "--separator", "\\n", "--max-new-tokens", 8, "--json", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    *notes, last = result.stderr.splitlines()
    assert last == f"the answers are in {out / 'predictions.jsonl'}"
    assert len(notes) == 1 and "regard: note: " in notes[0] and "(no-header)" in notes[0]
    report = json.loads(result.stdout)
    assert report["separator"] == "\n" and "predictions" not in report
    assert report == json.loads((out / "result.json").read_text("utf-8"))
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert [row["gold"] for row in rows] == list(FRENCH.values())
    assert all(row["id"] not in row["shots"] for row in rows)
    quiet = run(model, data, "--task", "translate", "--max-new-tokens", 8, "--quiet", "--out", out)
    assert quiet.exit_code == 0 and quiet.stderr == ""
    lines = quiet.stdout.splitlines()
    assert any(line.startswith("chrf") for line in lines) and "answers are in" not in quiet.stdout


def test_the_command_refuses_before_it_opens_anything(write: Write) -> None:
    for arguments, named in (
        (["--score", "best"], "--score, 'best'"),
        (["--verbalizer", "pos"], "LABEL=WORD"),
        (["--verbalizer", "pos=a", "--verbalizer", "pos=b"], "pos, twice"),
        (["--shots", "-1"], "shots, -1"),
        (["--language", "chinese"], "'chinese', ISO 639-1"),
        (["--out", str(write("file", "") / "deep")], "is a file, --out"),
    ):
        data = write("data.jsonl", "")
        message = str(run("nowhere", data, "--task", "classify", *arguments).exception)
        mentions(message, named.split(", "))
