"""The student of a distillation as it begins: whose layers it has, and which shapes there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import LoadedModel, load
from regard.core.errors import RegardError
from regard.formats.directory import save
from regard.methods.distill.student import make_student, shape_of, spread, student_of
from regard.models import create, family_of
from tests.objectives.rules import tiny


def test_which_layers_a_student_begins_with() -> None:
    assert spread(6, 12) == [0, 2, 4, 7, 9, 11]  # DistilBERT's
    assert spread(3, 6) == [0, 2, 5]
    assert spread(2, 6) == [0, 5] and spread(1, 6) == [0] and spread(4, 4) == [0, 1, 2, 3]


BY_LAYER = (2, 4, 6, 8, 10)
WINDOWS: dict[str, Any] = {
    "longformer": 8, "longformer, by layer": BY_LAYER, "longformer-characters": BY_LAYER,
}  # fmt: skip


def teacher_of(name: str) -> Any:
    """Of five layers."""
    if name not in WINDOWS:
        return tiny(name, layers=5)
    if name == "longformer-characters":
        return tiny(name, layers=5, windows=WINDOWS[name])
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 40,
        "width": 16,
        "heads": 2,
        "ffn_size": 32,
        "context": 64,
    }
    return create("longformer", layers=5, window=WINDOWS[name], **shape)


@pytest.mark.parametrize(
    "family", ["bert", "gpt", "xlnet", "transformer-xl", "t5", "transformer", "lstm", *WINDOWS]
)
def test_layers_embeddings_and_heads_are_the_teacher_s(family: str, tmp_path: Path) -> None:
    save(teacher_of(family), tmp_path / "teacher")
    loaded = load(tmp_path / "teacher")  # as files have it: decoder_layers may be said
    made = make_student(loaded, shape_of("layers=3"), tmp_path / "student", 1)
    teacher, student = loaded.model, load(tmp_path / "student").model
    assert student.config.layers == 3 and made["inherited"]
    if family in WINDOWS:  # each layer sees as far as it has learned to
        assert student.config.windows == tuple(teacher.config.windows[i] for i in (0, 2, 4))
    for name, held in student.stacks().items():
        theirs = teacher.stacks()[name]
        assert len(held) == 3
        for mine, place in zip(held, [0, 2, 4], strict=True):
            for key, value in mine.state_dict().items():
                assert torch.equal(value, theirs[place].state_dict()[key]), (name, place, key)
    ours, its = student.state_dict(), teacher.state_dict()
    rest = [key for key in ours if not any(f".{i}." in key for i in range(5))]
    assert rest and all(torch.equal(ours[key], its[key]) for key in rest)


def test_the_decoder_of_a_student_may_be_shorter_than_its_encoder() -> None:
    teacher = tiny("transformer", layers=4)
    student = student_of(LoadedModel(teacher), shape_of("decoder_layers=1"), 1)
    assert (len(student.encoder_blocks), len(student.decoder_blocks)) == (4, 1)
    for mine, its in ((student.encoder_blocks[3], teacher.encoder_blocks[3]),
                      (student.decoder_blocks[0], teacher.decoder_blocks[0])):  # fmt: skip
        assert torch.equal(mine.attention.layer.out.weight, its.attention.layer.out.weight)


def test_another_width_begins_at_random_by_the_seed() -> None:
    teacher = LoadedModel(tiny("bert"))
    first, again, other = (
        student_of(teacher, shape_of("width=8,heads=1"), seed).embeddings.tokens.weight
        for seed in (1, 1, 2)
    )
    assert first.shape[1] == 8 and torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("teacher", "heads", "words", "count"),
    [
        ("gpt2", {}, "layers=6", 81_912_576),  # DistilGPT2
        # DistilBERT has no embedding of segments.
        ("bert-base-uncased", {"masked": 0}, "layers=6", 66_985_530 + 2 * 768),
        # TinyBERT is counted with its pooler, and without the two classes behind it.
        ("bert-base-uncased", {"next": 2}, "layers=6", 66_955_008 + 2 * 768 + 2),
        (
            "bert-base-uncased", {"next": 2}, "layers=4,width=312,heads=12,ffn_size=1200",
            14_350_248 + 2 * 312 + 2,
        ),
    ],
    ids=["DistilGPT2", "DistilBERT", "TinyBERT6", "TinyBERT4"],
)  # fmt: skip
def test_students_of_the_papers_have_their_sizes(
    teacher: str, heads: dict[str, int], words: str, count: int
) -> None:
    card = family_of(teacher)
    build, known = card.model, card.sizes
    with torch.device("meta"):
        made = student_of(LoadedModel(build(known[teacher], heads)), shape_of(words), 1)
    assert made.parameter_count() == count


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("layers=9", "nor deeper"),
        ("width=64", "wider"),
        ("layers", "NAME=NUMBER"),
        ("layers=0", "NAME=NUMBER"),
        ("color=3", "part of a student's shape"),
        ("vocab_size=3", "part of a student's shape"),
        ("", "no shape"),
    ],
)
def test_shapes_that_no_student_has(words: str, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        student_of(LoadedModel(tiny("bert")), shape_of(words), 1)
