"""Teachers that were saved, and objectives that ask them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.data.examples import AnswerSpan as Gold
from regard.data.examples import LabeledExample, MultipleChoice, Question, TaggedExample
from regard.formats.directory import save
from regard.methods.distill.objective import Distill
from regard.tasks.answer_objective import AnswerObjective
from regard.tasks.choose import Choose
from regard.tasks.classify import Classify
from regard.tasks.link import EntityCandidate, Link, Mention
from regard.tasks.multilabel import Multilabel, MultiLabelExample
from regard.tasks.tag_objective import Tag
from tests.objectives.rules import make
from tests.objectives.small import random_documents, text_corpus
from tests.tasks.judging import TOKENIZER, examples, model_of

ALL = {"soft": 1.0, "hard": 1.0, "hidden": 1.0, "attention": 1.0, "embedding": 1.0}
FAMILIES = {  # family: (objective, its options)
    "bert": ("masked", {"documents": "separate"}),
    "gpt": ("causal", {"documents": "separate"}),
    "transformer-xl": ("recurrent", {}),
    "lstm": ("recurrent", {}),
    "xlnet": ("causal", {}),
    "t5": ("span", {"z_loss": 1e-3}),
    "transformer": ("pairs", {}),
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("corpora")
    pairs = random_documents(24, sentences=(2, 2), seed=3)
    return {
        "text": text_corpus(place / "text", random_documents(24, seed=2)),
        "pairs": text_corpus(place / "pairs", pairs, kind="pairs"),
    }


def teach(
    corpora: dict[str, Any], teacher: Any, place: Path, of: str, options: Any = None, **more: Any
) -> Any:
    """An objective whose teacher was saved; without a tokenizer, as the corpora have none."""
    save(teacher, place)
    corpus = corpora["pairs" if of == "pairs" else "text"]
    length = 16 if of in ("span", "pairs") else 8
    return make(
        Distill, corpus, seq_len=length, of=of, options=options or {}, teacher=str(place), **more
    )


def values(loss: Any) -> dict[str, float]:
    return {name: float(value.detach()) for name, value in loss.sums.items()}


def first_batch(objective: Any, count: int = 4) -> Any:
    return objective.collate([objective.get(i) for i in range(count)])


TASKS: dict[str, tuple[Any, list[Any], list[str]]] = {
    "classify": (
        Classify,
        [
            LabeledExample("a b", label="no"),
            LabeledExample("c d e f", label="yes"),
            LabeledExample("g"),
        ],
        ["no", "yes"],
    ),
    "similar": (Classify, [LabeledExample("a b", "c", 0.5), LabeledExample("d", "e f", 2.0)], []),
    "choose": (
        Choose,
        [
            MultipleChoice("a b", ("c", "d e", "f"), label=1),
            MultipleChoice("g", ("h i", "j"), label=0),
        ],
        [],
    ),
    "tag": (
        Tag,
        [TaggedExample(("a", "b", "c"), ("B-x", "I-x", "O")), TaggedExample(("d",), ("O",))],
        ["O", "B-x", "I-x"],
    ),
    "answer": (
        AnswerObjective,
        [Question("What was", "a b c d", (Gold("b c", 2),)), Question("What", "e f", ())],
        [],
    ),
    "multilabel": (
        Multilabel,
        [
            MultiLabelExample("a b", None, ("x", "z")),
            MultiLabelExample("c d e", None, ()),
            MultiLabelExample("f"),
        ],
        ["x", "y", "z"],
    ),
    "link": (
        Link,
        [
            Mention("a b c", "b", (EntityCandidate("d", "e f"), EntityCandidate("g")), "g"),
            Mention("h i", "h", tuple(map(EntityCandidate, "jkl")), "j"),
        ],
        [],
    ),
}
ABLE = [(task, family) for task in TASKS for family in ("bert", "gpt", "xlnet", "longformer")]


def labeled(task: str, family: str, place: Path, **more: Any) -> tuple[Any, Any]:
    """An objective for a task, and a teacher that has its heads."""
    kind, texts, labels = TASKS[task]
    corpus: Any = examples(task, texts, labels)
    options = {"impossible": more.pop("impossible", "no")} if task == "answer" else {}
    heads = kind(
        corpus, kind.Options(family=family, **options), seq_len=24, batch_size=8, seed=1
    ).heads()
    teacher = model_of(family, heads)
    save(teacher, place, TOKENIZER)
    chosen = Distill.Options(
        of=kind.name, options=options, teacher=str(place), family=family, **more
    )
    return Distill(corpus, chosen, seq_len=24, batch_size=8, seed=1), teacher
