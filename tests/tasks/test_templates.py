"""Prompts against texts written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.examples import (
    AnswerSpan,
    DialogueExample,
    Example,
    LabeledExample,
    MultipleChoice,
    Question,
    TextPair,
)
from regard.data.problems import FileLine
from regard.evaluation.prompter import Options, prompter_for
from regard.evaluation.prompting import evaluate
from regard.tasks import task as task_named
from regard.tasks.choose import lowered
from regard.tasks.templates import Template
from tests.decoding.small import talking


@pytest.mark.parametrize(
    ("task", "example", "expected"),
    [
        (
            "classify",
            LabeledExample("A fine film.", None, "pos"),
            "A fine film.\nQuestion: neg or pos?\nAnswer: |pos",
        ),
        (
            "classify",
            LabeledExample("A fine film.", "Very fine.", "pos"),
            "A fine film.\nVery fine.\nQuestion: neg or pos?\nAnswer: |pos",
        ),
        (
            "entail",
            LabeledExample("A man sleeps.", "Nobody sleeps.", "contradiction"),
            "A man sleeps.\nQuestion: Nobody sleeps. True, False, or Neither?\nAnswer: |False",
        ),
        (
            "similar",
            LabeledExample("A man sleeps.", "He sleeps.", "1"),
            "A man sleeps.\nHe sleeps.\nQuestion: 0 or 1?\nAnswer: |1",
        ),
        (
            "choose",
            MultipleChoice("The sun rose.", ("It was dark.", "I woke up."), "effect", 1),
            "The sun rose so |I woke up.",
        ),
        (
            "choose",
            MultipleChoice("My body cast a shadow.", ("The sun rose.", "It rained."), "cause", 0),
            "My body cast a shadow because |the sun rose.",
        ),
        (
            "choose",
            MultipleChoice("Tom ran.", ("He won.", "He slept."), None, 0),
            "Tom ran. |He won.",
        ),
        (
            "choose",
            MultipleChoice("Tom ran.", ("Home", "Away"), "Where?", 1),
            "Tom ran.\nQ: Where?\nA: |Away",
        ),
        (
            "answer",
            Question("Who ran?", "Tom ran home.", (AnswerSpan("Tom", 0),)),
            "Tom ran home.\nQ: Who ran?\nA: |Tom",
        ),
        (
            "answer",
            Question("Who swam?", "Tom ran home.", (), True),
            "Tom ran home.\nQ: Who swam?\nA: |unanswerable",
        ),
        ("translate", TextPair("the cat", "le chat"), "the cat = |le chat"),
        ("summarize", TextPair("A long story.", "A story."), "A long story.\nTL;DR: |A story."),
        ("converse", DialogueExample(("Hi.", "Hello.", "Bye.")), "Hi.\nHello.\n|Bye."),
    ],
)
def test_usual_templates(task: str, example: Example, expected: str) -> None:
    """The bar stands where the model begins to answer."""
    others = {
        "classify": ["neg"], "entail": ["entailment", "neutral"], "similar": ["0"],
    }.get(task, [])  # fmt: skip
    more = [LabeledExample("x", getattr(example, "pair", None), label) for label in others]
    asker = prompter_for(talking(), [example, *more], task_named(task), None, Options())
    context, gap = asker.prompt((), asker.values(example))
    before, right = expected.split("|")
    assert context + gap == before and context == before.rstrip(" ")
    shown = asker.prompt((example,), asker.values(example))[0]
    assert shown == before + right + asker.separator + context
    assert asker.separator == ("\n\n" if "\n" in asker.template.text else "\n")


def test_a_template_of_ones_own_with_words_and_an_instruction() -> None:
    pool = [LabeledExample("Bad {text}!", None, "neg"), LabeledExample("Fine.", None, "pos")]
    options = Options(
        template="{{{text}}} It was {label}", labels={"pos": "great", "neg": "terrible"},
        instruction="Say how it was.", separator="\n#\n",
    )  # fmt: skip
    asker = prompter_for(talking(), pool, task_named("classify"), None, options)
    assert asker.prompt(pool[:1], asker.values(pool[1])) == (
        "Say how it was.\n#\n{Bad {text}!} It was terrible\n#\n{Fine.} It was",
        " ",
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{txt} {label}", r"\{txt\}.*classify does not know.*\{text\}, \{pair\}"),
        ("{text.__class__} {label}", "does not know"),
        ("{text[0]} {label}", "does not know"),
        ("{text!r} {label}", "does not know"),
        ("{text:>9} {label}", "does not know"),
        ("{0} {label}", "does not know"),
        ("{} {label}", "does not know"),
        ("{text} {label", "lone '{' at character 8"),
        ("text} {label}", "lone '}' at character 5"),
        ("{label} {text}", "must end with the answer"),
        ("{text} {label} {label}", "hold it once"),
        ("{text}", "must end with the answer, {label}"),
        ("{text} {label}.", "must end with the answer"),
    ],
)
def test_bad_templates_are_refused(template: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Template(template, task_named("classify"))


def test_what_an_example_lacks_is_named_with_its_place() -> None:
    examples = [
        LabeledExample("a", None, "x", FileLine("f.csv", 3)),
        LabeledExample("b", None, "y"),
    ]
    with pytest.raises(InputError, match=r"f\.csv:3: the example has no pair"):
        evaluate(talking(), examples, "classify", template="{text} {pair} {label}")


def test_small_initials() -> None:
    assert [lowered(x) for x in ("The sun", "I ran", "I'm", "It")] == [
        "the sun", "I ran", "I'm", "it",
    ]  # fmt: skip


TWO = [LabeledExample("a", None, "x"), LabeledExample("b", None, "y")]


@pytest.mark.parametrize(
    ("examples", "task", "options", "error", "named"),
    [
        (TWO, "tag", {}, UnknownName, "task 'tag'"),
        (TWO, "classify", {"labels": {"z": "great"}}, UnknownName, "label 'z'"),
        (TWO, "classify", {"labels": {"x": "a", "y": "a"}}, ConfigError, "same word 'a'"),
        (TWO, "classify", {"labels": {"x": " "}}, ConfigError, "is empty"),
        (TWO, "classify", {"score": "best"}, UnknownName, "score 'best'"),
        (TWO, "classify", {"shot": 2}, UnknownName, "option 'shot'"),
        (TWO, "classify", {"shots": -1}, ConfigError, "shots is -1"),
        (TWO, "classify", {"neutral": "A:", "blank": ("N/A",)}, ConfigError, "leave out the other"),
        ([LabeledExample("a")], "classify", {}, InputError, "no label"),
        (TWO[:1], "classify", {}, InputError, "all examples have the label 'x'"),
        ([LabeledExample("a", "b", "4.5")], "similar", {}, InputError, r"score 4\.5"),
        ([], "classify", {}, InputError, "no examples"),
        ([TextPair("a", "b")], "translate", {"labels": {"x": "a"}}, ConfigError, "no labels"),
    ],
)
def test_refusals(
    examples: list[Example], task: str, options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        evaluate(talking(), examples, task, **options)


def test_words_that_a_tokenizer_cannot_tell_apart_are_refused() -> None:
    examples = [LabeledExample("the cat", None, "zebra"), LabeledExample("the dog", None, "quagga")]
    with pytest.raises(InputError, match="'quagga' and 'zebra' with the same tokens"):
        evaluate(talking("words"), examples, "classify")
