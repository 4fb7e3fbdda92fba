"""`regard augment` from a file to a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError, InputError, RegardError, StorageError, UnknownName
from regard.data.examples import TaggedExample
from regard.data.tags import problems
from regard.methods.augment.run import WIDTH, around
from regard.tasks import read
from tests.command import run as called
from tests.methods.augment.small import fates, listed, translator, wordnet
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import World

REVIEWS = [
    {"id": "a", "review": "The good film was warm, and I like it!", "label": "good", "stars": 5},
    {"id": "b", "review": "A dull film.", "label": "bad", "stars": 1},
]


@pytest.fixture
def own(tmp_path: Path) -> str:
    return str(listed(tmp_path / "own.tsv", "film\tmovie", "good\tfine", "dull\tboring"))


def write(file: Path, records: list[dict[str, Any]]) -> str:
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file.write_text(lines, encoding="utf-8")
    return str(file)


def run(*words: str) -> Any:
    """What it prints for programs."""
    report = called("augment", *words, "--json")
    if report.exception is not None:
        raise report.exception
    return json.loads(report.stdout)


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_more_examples_in_the_shape_of_the_file(tmp_path: Path, own: str) -> None:
    data, out = write(tmp_path / "few.jsonl", REVIEWS), tmp_path / "more.jsonl"
    report = run(data, "--task", "classify", "--thesaurus", own, "--copies", "4", "--out", str(out))
    records = rows(out)
    assert len(records) == report["written"] == 10 and report["examples"] == 2
    assert sum(report["variants"].values()) == 8
    assert [row["id"] for row in records] == ["a", *(f"a~{i}" for i in range(1, 5)),
                                           "b", *(f"b~{i}" for i in range(1, 5))]  # fmt: skip
    assert [row["label"] for row in records] == ["good"] * 5 + ["bad"] * 5
    assert records[0]["review"] == REVIEWS[0]["review"]
    assert set(records[0]) == {"id", "review", "label"}  # the fields that the task knows
    again = read(out, "classify")
    assert [e.text for e in again] == [row["review"] for row in records]  # type: ignore[union-attr]
    assert report["shown"][0]["example"] == REVIEWS[0]["review"] and report["share"] == 0.05


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, own: str) -> None:
    data = write(tmp_path / "few.jsonl", tuning.reviews(70))  # type: ignore[arg-type]
    words = [
        data,
        "--task",
        "classify",
        "--thesaurus",
        own,
        "--copies",
        "2",
        "--word-fraction",
        "0.2",
    ]
    for name, seed in (("one", "1"), ("two", "1"), ("three", "2")):
        run(*words, "--seed", seed, "--out", str(tmp_path / f"{name}.jsonl"))
    one, two, three = ((tmp_path / f"{n}.jsonl").read_bytes() for n in ("one", "two", "three"))
    assert one == two != three


def test_what_the_paper_advises_for_so_many_examples(tmp_path: Path, own: str) -> None:
    data = write(tmp_path / "few.jsonl", REVIEWS)
    report = run(data, "--task", "classify", "--thesaurus", own, "--out", str(tmp_path / "o.jsonl"))
    assert (report["share"], report["copies"], report["written"]) == (0.05, 16, 2 * 17)


def test_without_the_originals_and_what_is_no_different(tmp_path: Path, own: str) -> None:
    data, out = write(tmp_path / "few.jsonl", REVIEWS), tmp_path / "more.jsonl"
    words = [data, "--task", "classify", "--thesaurus", own, "--copies", "20"]
    report = run(*words, "--no-originals", "--distinct", "--out", str(out))
    texts = [row["review"] for row in rows(out)]
    assert len(texts) == len(set(texts)) == report["written"] < 40
    assert not {row["review"] for row in REVIEWS} & set(texts)
    assert sum(report["unchanged"].values()) > 0


def test_tagged_words(tmp_path: Path, own: str) -> None:
    data = tmp_path / "few.conll"
    data.write_text("Anna B-PER\nSmith I-PER\nlikes O\na O\ngood O\nfilm O\n. O\n\nRome B-LOC\n\n")
    out = tmp_path / "more.conll"
    report = run(str(data), "--task", "tag", "--thesaurus", own, "--copies", "6",
                "--word-fraction", "0.3", "--out", str(out))  # fmt: skip
    examples = read(out, "tag")
    assert len(examples) == report["written"] == 14
    for example in examples:
        assert isinstance(example, TaggedExample) and example.tags is not None
        assert not problems(example.tags)
        if "Anna" in example.words:
            at = example.words.index("Anna")
            assert example.words[at + 1] == "Smith" and example.tags[at + 1] == "I-PER"


@pytest.mark.parametrize("task", ["entail", "similar", "choose", "answer", "classify", "tag"])
def test_every_task_is_read_again(task: str, tmp_path: Path, own: str) -> None:
    data = World(tmp_path).data(task, 12)
    out = tmp_path / ("out.conll" if task == "tag" else "out.jsonl")
    words = [data, "--task", task, "--methods", "swap,delete,synonyms", "--thesaurus", own]
    assert run(*words, "--copies", "2", "--out", str(out))["written"] == 36
    before, after = read(data, task), read(out, task)
    assert len(after) == 36
    for number, example in enumerate(before):
        for copy in after[3 * number : 3 * number + 3]:
            for name in ("label", "impossible", "asks"):
                assert getattr(copy, name, None) == getattr(example, name, None)
        first: Any = after[3 * number]
        assert getattr(first, "text", "") == getattr(example, "text", "")


def test_tables(tmp_path: Path, own: str) -> None:
    data = tmp_path / "few.csv"
    data.write_text('body,section\n"A good film, they say",culture\nDull sports,sport\n')
    words = [str(data), "--task", "classify", "--field", "text=body", "--field", "label=section"]
    words += ["--methods", "swap", "--copies", "1"]
    run(*words, "--out", str(tmp_path / "more.csv"))
    lines = (tmp_path / "more.csv").read_text().splitlines()
    assert lines[0] == "body,section" and lines[1] == '"A good film, they say",culture'
    assert len(lines) == 5 and lines[4] == "sports Dull,sport"
    run(*words, "--out", str(tmp_path / "more.tsv"))
    assert (tmp_path / "more.tsv").read_text().splitlines()[1] == "A good film, they say\tculture"
    bare = listed(tmp_path / "bare.tsv", "A good film\tculture", "Dull sports\tsport")
    run(str(bare), "--task", "classify", "--methods", "swap", "--out", str(tmp_path / "b.tsv"))
    assert len(read(tmp_path / "b.tsv", "classify")) == 34


def test_choices_in_columns(tmp_path: Path) -> None:
    data = tmp_path / "few.csv"
    data.write_text("premise,choice1,choice2,label\na b c,d e,0 1,0\nb c d,0,1,1\n")
    out = tmp_path / "more.csv"
    run(str(data), "--task", "choose", "--methods", "swap", "--copies", "1", "--out", str(out))
    examples: Any = read(out, "choose")
    assert [example.label for example in examples] == [0, 0, 1, 1]
    assert examples[2].choices == examples[3].choices == ("0", "1")


def test_plain_text_keeps_its_paragraphs(tmp_path: Path, own: str) -> None:
    data = listed(tmp_path / "book.txt", "A good film.", "", "Dull.", "", "", "The end of a film.")
    out = tmp_path / "more.txt"
    run(str(data), "--methods", "synonyms", "--thesaurus", own, "--copies", "1", "--out", str(out))
    lines = out.read_text().splitlines()
    assert lines[0] == "A good film." and lines[1] in ("A fine film.", "A good movie.")
    assert lines[2:] == [
        "",
        "Dull.",
        "Boring.",
        "",
        "",
        "The end of a film.",
        "The end of a movie.",
    ]


def test_wordnet_of_a_directory(tmp_path: Path) -> None:
    data = gzip.compress(b'{"text": "a film", "label": "x"}\n')
    (tmp_path / "few.jsonl.gz").write_bytes(data)
    out = tmp_path / "more.jsonl"
    words = [str(tmp_path / "few.jsonl.gz"), "--task", "classify", "--methods", "synonyms"]
    words += ["--thesaurus", str(wordnet(tmp_path / "wn")), "--copies", "20"]
    run(*words, "--out", str(out))
    texts = {row["text"] for row in rows(out)}
    assert texts == {"a film", "a movie", "a motion picture", "a cinema", "a shoot"}


@pytest.fixture
def translated(tmp_path: Path) -> list[str]:
    """Three reviews, and models that translate them there and back."""
    data = write(tmp_path / "few.jsonl", tuning.reviews(3))  # type: ignore[arg-type]
    there, back = (str(translator(tmp_path / f"t{i}", "marian", i)) for i in (4, 5))
    return [data, "--task", "classify", "--back", there, "--forth", back]


def test_models(tmp_path: Path, translated: list[str]) -> None:
    masked = ["--mask-model", str(tuning.bert(tmp_path / "m")), "--copies", "4"]
    out = str(tmp_path / "more.jsonl")
    report = run(*translated, *masked, "--num-beams", "2", "--out", out)
    assert set(report["variants"]) == {"masked", "back"} and report["written"] == 15
    assert [row["label"] for row in rows(tmp_path / "more.jsonl")] == [
        record["label"] for record in tuning.reviews(3) for _ in range(5)
    ]


def test_beams_alone_make_one_variant(tmp_path: Path, translated: list[str]) -> None:
    words = translated
    report = run(*words, "--num-beams", "2", "--out", str(tmp_path / "one.jsonl"))
    assert (report["copies"], report["written"], report["share"]) == (1, 6, None)
    assert not report["notes"]
    report = run(*words, "--num-beams", "2", "--copies", "2", "--out", str(tmp_path / "two.jsonl"))
    assert report["written"] == 9 and "its variants by 'back' repeat it" in report["notes"][0]
    report = run(*words, "--out", str(tmp_path / "drawn.jsonl"))
    assert report["copies"] == 16 and not report["notes"]


def test_a_lost_translation_is_unchanged(tmp_path: Path) -> None:
    model = str(translator(tmp_path / "t", "t5", 1))
    translated, lost = fates(model)
    one = next(iter(translated))
    data = listed(tmp_path / "few.tsv", f"x x\t{one}", f"y y\t{lost[0]}")
    out = tmp_path / "more.tsv"
    words = [str(data), "--task", "translate", "--no-header", "--back", model, "--back-prefix", ""]
    report = run(*words, "--num-beams", "2", "--out", str(out))
    assert report["variants"] == {"back": 2} and report["unchanged"] == {"back": 1}
    pairs: Any = read(out, "translate")
    assert [pair.source for pair in pairs] == ["x x", translated[one], "y y", "y y"]


def test_cleaned_texts_are_written(tmp_path: Path) -> None:
    texts = ["It's GOOD!", "Film!", "我喜欢这部 Netflix 电影"]
    data = write(tmp_path / "few.jsonl", [{"text": text, "label": "x"} for text in texts])
    words = [data, "--task", "classify", "--methods", "swap", "--copies", "1", "--clean"]
    report = run(*words, "--out", str(tmp_path / "all.jsonl"))
    variants = [row["text"] for row in rows(tmp_path / "all.jsonl")]
    assert variants[:4] == ["its good", "good its", "film", "film"] and variants[4] == texts[2]
    assert sorted(variants[5]) == sorted(texts[2]) and "Netflix" in variants[5]
    assert report["unchanged"]["swap"] == 1 + (variants[5] == variants[4])
    run(*words, "--distinct", "--out", str(tmp_path / "distinct.jsonl"))
    assert [row["text"] for row in rows(tmp_path / "distinct.jsonl")].count("film") == 1


def test_entries_that_are_never_looked_up(tmp_path: Path) -> None:
    own = listed(tmp_path / "own.tsv", "film\tmovie", "hot dog\tsausage", "well-known\tfamous")
    data = write(tmp_path / "few.jsonl", REVIEWS)
    words = ["--methods", "synonyms", "--copies", "1", "--thesaurus", str(own)]
    report = run(data, "--task", "classify", *words, "--out", str(tmp_path / "more.jsonl"))
    assert report["notes"] == [f"2 of 3 entries of {own} are no single words, such as 'hot dog', "
                              "and are never looked up"]  # fmt: skip
    tags = listed(tmp_path / "few.conll", "A O", "well-known O", "film O", "")
    report = run(str(tags), "--task", "tag", *words, "--out", str(tmp_path / "more.conll"))
    assert report["notes"][0].startswith("1 of 3 entries")  # words of tags are not cut


def test_for_people(tmp_path: Path, own: str) -> None:
    data, out = write(tmp_path / "few.jsonl", REVIEWS), tmp_path / "more.jsonl"
    words = [data, "--task", "classify", "--thesaurus", own, "--copies", "8", "--out", str(out)]
    result = called("augment", *words)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == REVIEWS[0]["review"] and lines[1].startswith("  ")
    assert "2 examples, 0.05 of the words changed" in lines
    assert lines[-1] == f"{out} has 18 examples"
    model = ["--mask-model", str(tuning.bert(tmp_path / "bert")), "--mask-rule", "tinybert"]
    words = [data, "--task", "classify", *model, "--out", str(tmp_path / "o.jsonl")]
    lines = called("augment", *words).stdout.splitlines()
    assert "2 examples" in lines  # the share plays no part


def test_of_a_long_text_the_change_is_shown() -> None:
    old = "same " * 100 + "old" + " same" * 100
    new = old.replace("old", "new")
    assert around("short", "old") == "short"
    shown = around(new, old)
    assert shown.startswith("…") and "new" in shown and shown.endswith("…")
    assert len(shown) == WIDTH + 2
    assert around(old, old) == old[:WIDTH] + "…"


# -- refusals


def refused(error: type[RegardError], names: list[str], *words: str, out: Path) -> None:
    before = sorted(out.parent.iterdir())
    with refuses(error, *names):
        run(*words, "--out", str(out))
    assert sorted(out.parent.iterdir()) == before  # nothing is left behind


SWAP, BACK = "--task classify --methods swap", "--task classify --back none --forth none"


@pytest.mark.parametrize(
    ("words", "out", "error", "names"),
    [
        ("--task classify --methods swaps", "a.jsonl", UnknownName, ["'swaps'", "'swap'"]),
        (f"{SWAP} --forth 3", "a.jsonl", ConfigError, ["--forth", "--back"]),
        (f"{SWAP} --num-beams 3", "a.jsonl", ConfigError, ["--num-beams", "--back"]),
        (f"{SWAP} --back-prefix 3", "a.jsonl", ConfigError, ["--back-prefix", "--back"]),
        (f"{SWAP} --mask-rule tinybert", "a.jsonl", ConfigError, ["--mask-rule"]),
        (f"{SWAP} --candidates 15", "a.jsonl", ConfigError, ["--candidates"]),
        (f"{SWAP} --temperature 0.9", "a.jsonl", ConfigError, ["--temperature"]),
        (f"{SWAP} --insertion-rule code", "a.jsonl", ConfigError, ["'code'", "insert"]),
        (f"{BACK} --num-beams 2 --temperature 1", "a.jsonl", ConfigError, ["beams", "temperature"]),
        (f"{BACK} --word-fraction 0.1", "a.jsonl", ConfigError, ["--word-fraction"]),
        (SWAP, "a.jsonl.gz", ConfigError, [".gz"]),
        (SWAP, "a.txt", ConfigError, ["a.txt", "labels"]),
        (SWAP, "a.parquet", ConfigError, ["parquet"]),
        (SWAP, "a.conll", ConfigError, ["tagged"]),
        (SWAP, "old.jsonl", StorageError, ["old.jsonl", "overwritten"]),
        ("--task converse", "a.jsonl", ConfigError, ["converse", "answer"]),
        ("--task clasify", "a.jsonl", UnknownName, ["clasify", "classify"]),
        ("--task entail", "a.jsonl", InputError, ["field"]),
    ],
)
def test_what_is_refused(
    words: str, out: str, error: type[RegardError], names: list[str], tmp_path: Path
) -> None:
    data = write(tmp_path / "few.jsonl", REVIEWS)
    (tmp_path / "old.jsonl").write_text("mine")
    refused(error, names, data, *words.split(), out=tmp_path / out)
    assert (tmp_path / "old.jsonl").read_text() == "mine"


def test_malformed_lines_of_a_thesaurus_are_listed(tmp_path: Path) -> None:
    data = write(tmp_path / "few.jsonl", REVIEWS)
    bad = listed(tmp_path / "bad.tsv", "film\tmovie", "good fine", "a\t")
    refused(
        InputError, ["2 malformed lines", "bad.tsv:2: ", "bad.tsv:3: "],
        data, "--task", "classify", "--thesaurus", str(bad), out=tmp_path / "more.jsonl",
    )  # fmt: skip


def test_malformed_data(tmp_path: Path, own: str) -> None:
    data = tmp_path / "few.jsonl"
    data.write_text('{"text": "a film", "label": "x"}\n{"text": \n')
    words = [str(data), "--task", "classify", "--methods", "swap", "--copies", "1"]
    refused(InputError, ["few.jsonl:2: ", "JSON"], *words, out=tmp_path / "more.jsonl")
    report = run(*words, "--skip", "malformed-record", "--out", str(tmp_path / "more.jsonl"))
    assert report["written"] == 2 and "malformed-record" in report["notes"][0]


def test_rows_that_cannot_be_written_are_refused_before_any_work(tmp_path: Path) -> None:
    """The model of these variants is not even opened: there is none."""
    rest = ["--mask-model", str(tmp_path / "none")]
    data = write(tmp_path / "few.jsonl", [*REVIEWS, {"review": "two\nlines", "label": "bad"}])
    words = [data, "--task", "classify", *rest]
    refused(InputError, ["few.jsonl:3: ", "tab"], *words, out=tmp_path / "more.tsv")
    tags = [{"words": ["a", "film"], "tags": ["O", "O"]},
            {"words": ["New York", "is"], "tags": ["B-LOC", "O"]}]  # fmt: skip
    data = write(tmp_path / "tags.jsonl", tags)
    names = ["tags.jsonl:2: ", "'New York'", "CoNLL"]
    refused(InputError, names, data, "--task", "tag", *rest, out=tmp_path / "more.conll")


def test_words_with_blanks_between_tabs_are_written_as_they_came(tmp_path: Path) -> None:
    data = listed(tmp_path / "few.conll", "10 000\tB-NUM", "films\tO", "ran\tO", "")
    out = tmp_path / "more.conll"
    words = [str(data), "--task", "tag", "--methods", "swap", "--copies", "2"]
    run(*words, "--out", str(out))
    examples: Any = read(out, "tag")
    assert examples[0].words == ("10 000", "films", "ran") and len(examples) == 3
    assert all("10 000" in example.words for example in examples)


@pytest.mark.parametrize(
    ("task", "record"),
    [
        ("tag", {"words": ["a", "film"], "tags": ["O", "O"]}),
        ("translate", {"source": "a film", "target": "ein Film"}),
        ("answer", {"question": "What?", "passage": "A film", "answers": {
            "text": ["film"], "answer_start": [2]}}),
    ],
)  # fmt: skip
def test_what_is_not_cleaned(tmp_path: Path, task: str, record: dict[str, Any]) -> None:
    data = write(tmp_path / "few.jsonl", [record])
    words = [data, "--task", task, "--methods", "swap", "--clean"]
    refused(ConfigError, ["few.jsonl:1: ", "--clean", "label"], *words, out=tmp_path / "more.jsonl")
