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
from tests.files import Write, rows, seen, told

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
        found = read(write(name, text), "tag")
        assert [(e.words, e.tags) for e in found] == [
            (("EU", "rejects"), ("B-ORG", "O")),
            (("German",), ("B-MISC",)),
        ]
    found = read(write("a.txt", text), "tag", fields={"tags": "2"})
    assert found[0].tags == ("NNP", "VBZ")
    with pytest.raises(InputError, match="from 1 to 4"):
        read(write("a.txt", text), "tag", fields={"tags": "5"})


def test_conll_words_without_tags(write: Write) -> None:
    (found,) = read(write("a.conll", "a\nb\n"), "tag")
    assert (found.words, found.tags) == (("a", "b"), None)


def test_extra_columns_in_places(write: Write) -> None:
    text = "a\tO\nb\tB-x\tsomething\nc\tO\t\n\nd\tO\n"
    examples, problems = seen(write("a.conll", text), "tag")
    assert [e.tags for e in examples] == [("O", "B-x", "O"), ("O",)]
    assert problems == ["warning ragged-line 2"]


def test_ragged_conll_lines(write: Write) -> None:
    text = "a\tO\nb\nc\n\nd\tO\n\n\tO\n\ne\t\tx\n\nf\tO\r\n"
    examples, problems = seen(write("a.conll", text), "tag")
    assert [e.words for e in examples] == [("d",), ("f",)]
    assert problems == [
        "error ragged-line 2",
        "error ragged-line 3",
        "error empty-text 7",
        "error missing-label 9",
    ]


def test_conll_comments_and_ids(write: Write) -> None:
    text = "# sent_id = s1\n# text = a b\na\tO\n#\tO\n\n# id q7\tdomain=en\nb\tO\n"
    found = read(write("a.conll", text), "tag")
    assert [(e.id, e.words) for e in found] == [("s1", ("a", "#")), ("q7", ("b",))]
    (found_, *_) = read(write("b.conll", "# O\n= O\n"), "tag")
    assert found_.words == ("#", "=")


def test_tags_in_jsonl(write: Write) -> None:
    file = write(
        "a.jsonl",
        rows(
            {"tokens": ["a", "b"], "ner_tags": ["O", "B-x"]},
            {"tokens": ["a", "b"], "ner_tags": ["O"]},
            {"tokens": [], "ner_tags": []},
            {"tokens": ["a", " "], "ner_tags": ["O", "O"]},
            {"tokens": ["a"], "ner_tags": None},
        ),
    )
    examples, problems = seen(file, "tag")
    assert [(e.words, e.tags) for e in examples] == [(("a", "b"), ("O", "B-x"))]
    assert problems == [
        "error ragged-line 2",
        "error empty-text 3",
        "error empty-text 4",
        "error missing-label 5",
    ]


def test_conll_is_for_tags(write: Write) -> None:
    with pytest.raises(InputError, match="--task tag"):
        read(write("a.conll", WNUT), "classify")


# -- answers

PASSAGE = "The 308 points, and 24 more: 308."


def squad(*questions: dict[str, Any], indent: int | None = 1, **more: Any) -> str:
    paragraph = {"context": PASSAGE, "qas": list(questions)}
    content = {**more, "data": [{"title": "t", "paragraphs": [paragraph]}]}
    return json.dumps(content, indent=indent, ensure_ascii=False)


def asked(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"question": f"which {name}?", "id": name, "answers": given, **more}


def test_squad(write: Write) -> None:
    content = squad(asked("q1", ("308", 4), ("308", 4)), asked("q2", ("24", 20)))
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
    no = asked("q1", is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}])
    yes = asked("q2", ("24", 20), is_impossible=False)
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
            asked("near", ("308", 27)),
            asked("none", ("309", 4)),
            asked("some", ("24", 19), ("24", 20)),
            asked("beyond", ("24", 400)),
            asked("negative", ("24", -5)),
            asked("good", ("24", 20)),
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
    messages = [p.message for p in problems.kept]
    assert "not at character 27" in messages[0] and "nearest place is 29" in messages[0]
    assert "nowhere in the passage" in messages[1]
    assert "others are right" in messages[2]
    assert "there is nothing; the nearest place is 20" in messages[3]
    assert "nearest place is 20" in messages[4]
    assert len(read(file, "answer", offsets=False)) == 6


def test_flat_questions(write: Write) -> None:
    base = {"question": "q", "context": PASSAGE}
    file = write(
        "a.jsonl",
        rows(
            {**base, "answers": {"text": ["24"], "answer_start": [20]}},
            {**base, "answers": {"text": [], "answer_start": []}},
            {**base, "answers": ["24"]},
            {**base, "answers": "308"},
            {**base, "answers": [{"text": "24"}]},
            {**base, "answers": 7},
            {**base, "answers": {"text": ["24"], "answer_start": [20, 21]}},
            {**base, "answers": [{"text": "24", "answer_start": "x"}]},
        ),
    )
    examples, problems = seen(file, "answer")
    assert [e.answers for e in examples] == [
        (AnswerSpan("24", 20),),
        (),
        (AnswerSpan("24", 20),),
        (AnswerSpan("308", 4),),
        (AnswerSpan("24", 20),),
    ]
    assert [e.impossible for e in examples] == [False, True, False, False, False]
    assert problems == [
        "warning answer-offset 4",
        "error wrong-type 6",
        "error wrong-type 7",
        "error wrong-type 8",
    ]


def test_questions_in_tables(write: Write) -> None:
    file = write("a.tsv", f"question\tcontext\tanswer\tanswer_start\nq\t{PASSAGE}\t24\t20\n")
    (found,) = read(file, "answer")
    assert found.answers == (AnswerSpan("24", 20),)


def test_impossible_with_an_answer(write: Write) -> None:
    examples, problems = seen(
        write("a.json", squad(asked("q", ("24", 20), is_impossible=True))), "answer"
    )
    assert [(e.impossible, e.answers) for e in examples] == [(True, ())]
    assert [problem.rsplit(" ", 1)[0] for problem in problems] == ["warning contradiction"]


def test_broken_squad(write: Write) -> None:
    assert "line 2" in told(write("a.json", '{"data":\n[}'), "answer")
    assert "no list 'paragraphs'; there are: 'title'" in told(
        write("a.json", '{"data": [{"title": "x"}]}'), "answer"
    )
    assert "there are: 'version'" in told(write("a.json", '{"version": 1}'), "answer")
    assert "holds int" in told(write("a.json", '{"data": [3]}'), "answer")


def test_duplicate_ids(write: Write) -> None:
    examples, problems = seen(write("a.json", squad(asked("q", ("24", 20)), asked("q"))), "answer")
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
    (found,) = read(write("a.jsonl", rows(record)), "choose")
    assert isinstance(found, MultipleChoice)
    assert (found.premise, found.choices, found.asks, found.label) == expected


def test_choices_in_tables(write: Write) -> None:
    file = write("a.csv", "premise,choice1,choice2,choice3,label\np,x,y,,1\n")
    (found,) = read(file, "choose")
    assert (found.choices, found.label) == (("x", "y"), 1)
    hole = write("b.csv", "premise,choice1,choice2,choice3,label\np,x,,z,2\n")
    assert seen(hole, "choose") == ([], ["error empty-text 2"])


def test_bad_choices(write: Write) -> None:
    def made(choices: Any, label: Any) -> dict[str, Any]:
        return {"premise": "p", "choices": choices, "label": label}

    file = write(
        "a.jsonl",
        rows(
            made(["x", "y"], 0),
            made(["x", "y"], 2),
            made(["x", "y"], -1),
            made(["x", "y", "z"], 2),
            made(["x"], 0),
            made(["x", ""], 0),
            made(["x", 3], 0),
            made("xy", 0),
            made(["x", "y"], "first"),
            made(["x", "y"], None),
        ),
    )
    examples, problems = seen(file, "choose")
    assert [e.place.line for e in examples] == [1, 4]
    assert problems == [
        "error label-range 2",
        "error label-range 3",
        "warning uneven-choices 4",
        "error uneven-choices 5",
        "error empty-text 6",
        "error wrong-type 7",
        "error wrong-type 8",
        "error not-a-number 9",
        "error missing-label 10",
    ]


# -- pairs


def test_parallel_tsv(write: Write) -> None:
    file = write("a.tsv.gz", '"Hi".\t嗨。\nRun.\t跑。\n')
    examples, problems = seen(file, "translate")
    assert [(e.source, e.target) for e in examples] == [('"Hi".', "嗨。"), ("Run.", "跑。")]
    assert problems == ["note no-header 1"]
    (found,) = read(write("b.tsv", "Hi.\t嗨。\tby nobody\n"), "translate")
    assert (found.source, found.target) == ("Hi.", "嗨。")


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
    assert f"{two}:2: the line is empty" in told([one, two], "translate")


def test_two_files_of_unequal_length(write: Write) -> None:
    one, two = write("a.en", "a\nb\nc\n"), write("a.zh", "甲\n")
    with pytest.raises(InputError, match=r"lines: 3 here but 1 in .*a\.zh"):
        read([one, two], "translate")
    with pytest.raises(InputError, match=r"lines: 1 here but 3 in .*a\.en"):
        read([two, one], "translate")


def test_only_two_text_files_are_parallel(write: Write) -> None:
    files = [write(name, "a\n") for name in ("a.en", "a.de", "a.fr")]
    with pytest.raises(InputError, match="3 files"):
        read(files, "translate")
    (found,) = read(files[0], "translate")
    assert found == TextPair("a", None, FileLine(str(files[0]), 1), f"{files[0]}:1")


def test_names_of_pairs_of_texts(write: Write) -> None:
    for record, task in (
        ({"source": "x", "target": "y"}, "translate"),
        ({"translation": {"en": "x", "de": "y"}}, "translate"),
        ({"document": "x", "summary": "y"}, "summarize"),
        ({"article": "x", "highlights": "y"}, "summarize"),
    ):
        (found,) = read(write("a.jsonl", rows(record)), task)
        assert (found.source, found.target) == ("x", "y")
    file = write("a.jsonl", rows({"translation": {"en": "x", "de": "y"}}))
    (found,) = read(file, "translate", fields={"source": "de", "target": "en"})
    assert (found.source, found.target) == ("y", "x")


def test_pairs_with_an_empty_side(write: Write) -> None:
    file = write("a.jsonl", rows({"source": "x", "target": ""}, {"source": "x", "target": None}))
    assert seen(file, "translate") == ([], ["error empty-text 1", "error missing-label 2"])


# -- dialogue


def test_dialogues_are_lists(write: Write) -> None:
    for name in ("a.csv", "a.txt"):
        with pytest.raises(InputError, match="give jsonl with 'turns'"):
            read(write(name, "hi\n"), "converse")


def test_dialogue(write: Write) -> None:
    file = write(
        "a.jsonl",
        rows(
            {"topic": "ai", "turns": ["什么是ai", "人工智能"]},
            {"turns": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
            {"turns": ["alone"]},
            {"turns": ["a", ""]},
            {"turns": ["a", 3]},
            {"turns": "a"},
            {"turns": [{"x": 1}]},
        ),
    )
    examples, problems = seen(file, "converse")
    assert examples[0] == DialogueExample(
        ("什么是ai", "人工智能"), None, FileLine(str(file), 1), f"{file}:1"
    )
    assert examples[1].roles == ("user", "assistant")
    assert problems == [
        "warning short-dialogue 3",
        "error empty-text 4",
        "error wrong-type 5",
        "error wrong-type 6",
        "error wrong-type 7",
    ]


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
    (found,) = read(file, "tag")
    assert (found.words, found.tags) == (("We", "do", "n't", "."), ("PRON", "AUX", "PART", "PUNCT"))
    (found,) = read(file, "tag", fields={"words": "3", "tags": "8"})
    assert (found.words[2], found.tags) == ("not", ("root", "aux", "advmod", "punct"))


def test_a_number_points_to_a_choice_even_where_choices_are_numbers(write: Write) -> None:
    for label, index in ((2, 2), ("2", 1), ("C", 2)):
        record = {"premise": "1 + 2 =", "choices": ["4", "2", "3", "1"], "label": label}
        (found,) = read(write("a.jsonl", rows(record)), "choose")
        assert found.label == index
