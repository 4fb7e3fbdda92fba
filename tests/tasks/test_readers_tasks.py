"""Records as examples: tags, answers, choices, pairs, dialogue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regard.core.errors import InputError
from regard.data.examples import (
    AnswerSpan,
    DialogueExample,
    MultipleChoice,
    Question,
    TaggedExample,
    TextPair,
)
from regard.data.problems import FileLine, Problems
from regard.data.readers import ExampleReader
from regard.tasks import read
from regard.tasks import task as task_named
from tests.files import Write, messages, rows, seen
from tests.refusals import mentions, refuses

# -- tags

WNUT = "Mr\tO\nX\tB-person\n\t\nthe\tO\nend\tO\n"


def test_conll_with_tabs(write: Write) -> None:
    file = write("a.conll.gz", WNUT)
    assert read(file, "tag") == [
        TaggedExample(("Mr", "X"), ("O", "B-person"), FileLine(str(file), 1), f"{file}:1"),
        TaggedExample(("the", "end"), ("O", "O"), FileLine(str(file), 4), f"{file}:4"),
    ]


def test_conll_2003(write: Write) -> None:
    text = (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nGerman JJ B-NP B-MISC\n"
    )
    for name in ("a.txt", "a.conll", "a"):
        examples = read(write(name, text), "tag")
        assert [(e.words, e.tags) for e in examples] == [
            (("EU", "rejects"), ("B-ORG", "O")),
            (("German",), ("B-MISC",)),
        ]
    examples = read(write("a.txt", text), "tag", fields={"tags": "2"})
    assert examples[0].tags == ("NNP", "VBZ")
    with refuses(InputError, "--field tags=5", "a.txt", "from 1 to 4"):
        read(write("a.txt", text), "tag", fields={"tags": "5"})


@pytest.mark.parametrize(
    ("text", "read_as", "problems"),
    [
        ("a\nb\n", [(("a", "b"), None)], []),  # words without tags
        (
            "a\tO\nb\tB-x\tsomething\nc\tO\t\n\nd\tO\n",  # more columns in places
            [(("a", "b", "c"), ("O", "B-x", "O")), (("d",), ("O",))],
            ["warning ragged-line 2"],
        ),
        (
            "a\tO\nb\nc\n\nd\tO\n\n\tO\n\ne\t\tx\n\nf\tO\r\n",
            [(("d",), ("O",)), (("f",), ("O",))],
            [
                "error ragged-line 2",
                "error ragged-line 3",
                "error empty-text 7",
                "error missing-label 9",
            ],
        ),
    ],
)
def test_columns_of_conll(write: Write, text: str, read_as: list[Any], problems: list[str]) -> None:
    examples, noted = seen(write("a.conll", text), "tag")
    assert [(e.words, e.tags) for e in examples] == read_as
    assert noted == problems


def test_conll_comments_and_ids(write: Write) -> None:
    text = "# sent_id = s1\n# text = a b\na\tO\n#\tO\n\n# id q7\tdomain=en\nb\tO\n"
    examples = read(write("a.conll", text), "tag")
    assert [(e.id, e.words) for e in examples] == [("s1", ("a", "#")), ("q7", ("b",))]
    (first, *_) = read(write("b.conll", "# O\n= O\n"), "tag")
    assert first.words == ("#", "=")


def test_tags_in_jsonl(write: Write) -> None:
    (example,) = read(write("a.jsonl", rows(RIGHT["tag"])), "tag")
    assert (example.words, example.tags) == (("a", "b"), ("O", "B-x"))


def test_conll_is_for_tags(write: Write) -> None:
    with refuses(InputError, "a.conll", "--task tag"):
        read(write("a.conll", WNUT), "classify")


# -- answers

PASSAGE = "The 308 points, and 24 more: 308."
QUESTION = {"question": "q", "context": PASSAGE}


def squad(*questions: dict[str, Any], indent: int | None = 1, **more: Any) -> str:
    paragraph = {"context": PASSAGE, "qas": list(questions)}
    content = {**more, "data": [{"title": "t", "paragraphs": [paragraph]}]}
    return json.dumps(content, indent=indent, ensure_ascii=False)


def question(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    records = [{"text": text, "answer_start": start} for text, start in answers]
    return {"question": f"which {name}?", "id": name, "answers": records, **more}


def test_squad(write: Write) -> None:
    content = squad(question("q1", ("308", 4), ("308", 4)), question("q2", ("24", 20)))
    file = write("a.json.gz", content)
    one, two = read(file, "answer")
    assert one == Question(
        "which q1?",
        PASSAGE,
        (AnswerSpan("308", 4),) * 2,
        False,
        FileLine(str(file), one.place.line),
        "q1",
    )
    lines = content.splitlines()
    assert '"q1"' in lines[one.place.line - 1]
    assert '"q2"' in lines[two.place.line - 1]


def test_squad_2(write: Write) -> None:
    no = question("q1", is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}])
    yes = question("q2", ("24", 20), is_impossible=False)
    examples, problems = seen(
        write("a.json", squad(no, yes, version="v2.0", indent=None)), "answer"
    )
    assert [(e.impossible, len(e.answers)) for e in examples] == [(True, 0), (False, 1)]
    assert not problems


def test_squad_without_answers_or_ids(write: Write) -> None:
    file = write("a.json", squad({"question": "a?"}, {"question": "b?"}, indent=None))
    examples, problems = seen(file, "answer")
    assert [(e.answers, e.impossible) for e in examples] == [((), False)] * 2
    assert len({e.id for e in examples}) == 2
    assert not problems


def test_answers_off_their_place(write: Write) -> None:
    file = write(
        "a.json",
        squad(
            question("near", ("308", 27)),
            question("none", ("309", 4)),
            question("some", ("24", 19), ("24", 20)),
            question("beyond", ("24", 400)),
            question("negative", ("24", -5)),
            question("good", ("24", 20)),
        ),
    )
    problems = Problems()
    examples = list(ExampleReader(file, task_named("answer"), None, problems))
    assert [e.id for e in examples] == ["some", "good"]
    assert [len(e.answers) for e in examples] == [1, 1]
    assert {(p.severity, p.kind) for p in problems.kept} == {
        ("error", "answer-offset"),
        ("warning", "answer-offset"),
    }
    named = ("character 27, 29", "nowhere", "others", "nothing, 20", "20")
    for problem, parts in zip(problems.kept, named, strict=True):
        assert all(part in problem.message for part in parts.split(", ")), problem.message
    assert len(read(file, "answer", offsets=False)) == 6


@pytest.mark.parametrize(
    ("answers", "spans", "expected"),
    [
        ({"text": ["24"], "answer_start": [20]}, [AnswerSpan("24", 20)], []),
        ({"text": [], "answer_start": []}, [], []),
        (["24"], [AnswerSpan("24", 20)], []),
        ("308", [AnswerSpan("308", 4)], ["warning answer-offset 1"]),
        ([{"text": "24"}], [AnswerSpan("24", 20)], []),
    ],
)
def test_flat_questions(
    write: Write, answers: Any, spans: list[AnswerSpan], expected: list[str]
) -> None:
    (example,), problems = seen(write("a.jsonl", rows({**QUESTION, "answers": answers})), "answer")
    assert (example.answers, example.impossible) == (tuple(spans), not spans)
    assert problems == expected


def test_questions_in_tables(write: Write) -> None:
    file = write("a.tsv", f"question\tcontext\tanswer\tanswer_start\nq\t{PASSAGE}\t24\t20\n")
    (example,) = read(file, "answer")
    assert example.answers == (AnswerSpan("24", 20),)


def test_impossible_with_an_answer(write: Write) -> None:
    examples, problems = seen(
        write("a.json", squad(question("q", ("24", 20), is_impossible=True))), "answer"
    )
    assert [(e.impossible, e.answers) for e in examples] == [(True, ())]
    assert [problem.rsplit(" ", 1)[0] for problem in problems] == ["warning contradiction"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"data":\n[}', "line 2"),
        ('{"data": [{"title": "x"}]}', "'paragraphs', 'title'"),
        ('{"version": 1}', "'version'"),
        ('{"data": [3]}', "int"),
    ],
)
def test_broken_squad(write: Write, content: str, named: str) -> None:
    message = messages(write("a.json", content), "answer")
    mentions(message, named.split(", "))


def test_duplicate_ids(write: Write) -> None:
    examples, problems = seen(
        write("a.json", squad(question("q", ("24", 20)), question("q"))), "answer"
    )
    assert len(examples) == 1
    assert [problem.rsplit(" ", 1)[0] for problem in problems] == ["error duplicate-id"]
    file = write("a.jsonl", rows({"id": 1, "text": "a"}, {"id": 1, "text": "b"}))
    examples, problems = seen(file, "classify")
    assert (len(examples), problems) == (2, ["warning duplicate-id 2"])


# -- choices


def test_copa(write: Write) -> None:
    file = write(
        "a.jsonl", rows({"premise": "p", "asks": "cause", "choices": ["x", "y"], "label": 1})
    )
    assert read(file, "choose") == [
        MultipleChoice("p", ("x", "y"), "cause", 1, FileLine(str(file), 1), f"{file}:1")
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"premise": "p", "choice1": "x", "choice2": "y", "question": "effect", "label": 0},
            ("p", ("x", "y"), "effect", 0),
        ),
        (
            {"article": "p", "question": "q?", "options": ["x", "y", "z"], "answer": "C"},
            ("p", ("x", "y", "z"), "q?", 2),
        ),
        (
            {"ctx": "p", "endings": ["x", "y"], "label": "1"},
            ("p", ("x", "y"), None, 1),
        ),
        (
            {
                "question": "p",
                "choices": {"label": ["1", "2"], "text": ["x", "y"]},
                "answerKey": "1",
            },
            ("p", ("x", "y"), None, 0),
        ),
        (
            {"sent1": "p", "ending0": "x", "ending1": "y", "ending10": "z", "label": "ending1"},
            ("p", ("x", "y", "z"), None, 1),
        ),
        ({"premise": "p", "choices": ["x", "y"]}, ("p", ("x", "y"), None, None)),
    ],
)
def test_layouts_of_choices(write: Write, record: dict[str, Any], expected: Any) -> None:
    (example,) = read(write("a.jsonl", rows(record)), "choose")
    assert isinstance(example, MultipleChoice)
    assert (example.premise, example.choices, example.asks, example.label) == expected


def test_choices_in_tables(write: Write) -> None:
    file = write("a.csv", "premise,choice1,choice2,choice3,label\np,x,y,,1\n")
    (example,) = read(file, "choose")
    assert (example.choices, example.label) == (("x", "y"), 1)
    hole = write("b.csv", "premise,choice1,choice2,choice3,label\np,x,,z,2\n")
    assert seen(hole, "choose") == ([], ["error empty-text 2"])


# -- pairs


def test_parallel_tsv(write: Write) -> None:
    file = write("a.tsv.gz", '"Hi".\t嗨。\nRun.\t跑。\n')
    examples, problems = seen(file, "translate")
    assert [(e.source, e.target) for e in examples] == [('"Hi".', "嗨。"), ("Run.", "跑。")]
    assert problems == ["note no-header 1"]
    (example,) = read(write("b.tsv", "Hi.\t嗨。\tby nobody\n"), "translate")
    assert (example.source, example.target) == ("Hi.", "嗨。")


def test_two_files(write: Write) -> None:
    one = write("a.en", "\ufeffa\r\nb\n\nc\nd")
    two = write("a.zh", "甲\n\n\n丙\n丁")
    examples, problems = seen([one, two], "translate")
    assert [(e.source, e.target, e.place.line) for e in examples] == [
        ("a", "甲", 1),
        ("c", "丙", 4),
        ("d", "丁", 5),
    ]
    assert problems == ["error empty-text 2", "note blank-line 3"]
    assert f"{two}:2: the line is empty" in messages([one, two], "translate")


def test_two_files_of_unequal_length(write: Write) -> None:
    one, two = write("a.en", "a\nb\nc\n"), write("a.zh", "甲\n")
    with refuses(InputError, "unequal-files", f"{one}: lines: 3 ", f" 1 in {two}"):
        read([one, two], "translate")
    with refuses(InputError, "unequal-files", f"{two}: lines: 1 ", f" 3 in {one}"):
        read([two, one], "translate")


def test_only_two_text_files_are_parallel(write: Write) -> None:
    files = [write(name, "a\n") for name in ("a.en", "a.de", "a.fr")]
    with refuses(InputError, "3 files"):
        read(files, "translate")
    (example,) = read(files[0], "translate")
    assert example == TextPair("a", None, FileLine(str(files[0]), 1), f"{files[0]}:1")


def test_names_of_pairs_of_texts(write: Write) -> None:
    for record, task in (
        ({"source": "x", "target": "y"}, "translate"),
        ({"translation": {"en": "x", "de": "y"}}, "translate"),
        ({"document": "x", "summary": "y"}, "summarize"),
        ({"article": "x", "highlights": "y"}, "summarize"),
    ):
        (example,) = read(write("a.jsonl", rows(record)), task)
        assert (example.source, example.target) == ("x", "y")
    file = write("a.jsonl", rows({"translation": {"en": "x", "de": "y"}}))
    (example,) = read(file, "translate", fields={"source": "de", "target": "en"})
    assert (example.source, example.target) == ("y", "x")


# -- dialogue


def test_dialogues_are_lists(write: Write) -> None:
    for name in ("a.csv", "a.txt"):
        with refuses(InputError, name, "jsonl", "'turns'"):
            read(write(name, "hi\n"), "converse")


def test_dialogue(write: Write) -> None:
    file = write(
        "a.jsonl",
        rows(
            {"topic": "ai", "turns": ["什么是ai", "人工智能"]},
            {"turns": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
        ),
    )
    examples, problems = seen(file, "converse")
    assert examples[0] == DialogueExample(
        ("什么是ai", "人工智能"), None, FileLine(str(file), 1), f"{file}:1"
    )
    assert examples[1].roles == ("user", "assistant")
    assert not problems


UNIVERSAL = """# sent_id = 1
# text = We don't.
1\tWe\twe\tPRON\t_\t_\t0\troot\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t1\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\tSpaceAfter=No
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_
"""


def test_universal_dependencies_have_their_own_columns(write: Write) -> None:
    file = write("a.conllu", UNIVERSAL)
    (example,) = read(file, "tag")
    assert (example.words, example.tags) == (
        ("We", "do", "n't", "."),
        ("PRON", "AUX", "PART", "PUNCT"),
    )
    (example,) = read(file, "tag", fields={"words": "3", "tags": "8"})
    assert (example.words[2], example.tags) == ("not", ("root", "aux", "advmod", "punct"))


def test_a_number_points_to_a_choice_even_where_choices_are_numbers(write: Write) -> None:
    for label, index in ((2, 2), ("2", 1), ("C", 2)):
        record = {"premise": "1 + 2 =", "choices": ["4", "2", "3", "1"], "label": label}
        (example,) = read(write("a.jsonl", rows(record)), "choose")
        assert example.label == index


# -- what is wrong in a record

RIGHT: dict[str, dict[str, Any]] = {
    "tag": {"tokens": ["a", "b"], "ner_tags": ["O", "B-x"]},
    "answer": {**QUESTION, "answers": ["24"]},
    "choose": {"premise": "p", "choices": ["x", "y"], "label": 0},
    "translate": {"source": "x", "target": "y"},
    "converse": {"turns": ["hi", "ho"]},
}


@pytest.mark.parametrize(
    ("task", "changes", "problem"),
    [
        ("tag", {"ner_tags": ["O"]}, "error ragged-line"),
        ("tag", {"tokens": [], "ner_tags": []}, "error empty-text"),
        ("tag", {"tokens": ["a", " "]}, "error empty-text"),
        ("tag", {"tokens": ["a"], "ner_tags": None}, "error missing-label"),
        ("answer", {"answers": 7}, "error wrong-type"),
        ("answer", {"answers": {"text": ["24"], "answer_start": [20, 21]}}, "error wrong-type"),
        ("answer", {"answers": [{"text": "24", "answer_start": "x"}]}, "error wrong-type"),
        ("choose", {"label": 2}, "error label-range"),
        ("choose", {"label": -1}, "error label-range"),
        ("choose", {"label": "first"}, "error not-a-number"),
        ("choose", {"label": None}, "error missing-label"),
        ("choose", {"choices": ["x", "y", "z"], "label": 2}, "warning uneven-choices"),
        ("choose", {"choices": ["x"]}, "error uneven-choices"),
        ("choose", {"choices": ["x", ""]}, "error empty-text"),
        ("choose", {"choices": ["x", 3]}, "error wrong-type"),
        ("choose", {"choices": "xy"}, "error wrong-type"),
        ("translate", {"target": ""}, "error empty-text"),
        ("translate", {"target": None}, "error missing-label"),
        ("converse", {"turns": ["alone"]}, "warning short-dialogue"),
        ("converse", {"turns": ["a", ""]}, "error empty-text"),
        ("converse", {"turns": ["a", 3]}, "error wrong-type"),
        ("converse", {"turns": "a"}, "error wrong-type"),
        ("converse", {"turns": [{"x": 1}]}, "error wrong-type"),
    ],
)
def test_wrong_records(write: Write, task: str, changes: dict[str, Any], problem: str) -> None:
    file = write("a.jsonl", rows(RIGHT[task], RIGHT[task] | changes))
    examples, problems = seen(file, task)
    assert problems == [f"{problem} 2"]
    assert [e.place.line for e in examples] == ([1, 2] if "warning" in problem else [1])
