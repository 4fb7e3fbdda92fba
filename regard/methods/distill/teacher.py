"""The teacher of a distillation: what it is, whether a student fits it, and itself, loaded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, InputError
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import load, locate
from regard.methods.runs import model_facts, weights_digest
from regard.models import FAMILIES
from regard.objectives.base import Objective
from regard.tasks.labeled import LabeledObjective, task_facts


class Teacher:
    """Known by its files at first; `like` opens it when it is asked. `digest` is that of its
    weights when a run with it began.
    """

    def __init__(self, path: str | None, objective: Objective, digest: str | None = None) -> None:
        if not path:
            raise ConfigError("objective.teacher is missing; give the directory of a model")
        self.path, self.objective = locate(path, False), objective
        self.family, self.config, heads, self.extensions = model_facts(self.path)
        self.pair = FAMILIES[self.family].model.kind == "encoder-decoder"
        self.layers = depths(self.family, self.config)
        self.depth = self.config.layers + ("pointer" in self.extensions)  # tensors it remembers
        self.model: Any = None
        check_heads(self.path, heads, objective.heads() or {}, self.family)
        check_tokenizer(self.path, objective.corpus)
        if isinstance(objective, LabeledObjective):
            check_labels(self.path, objective.corpus.labels)
        self.digest = weights_digest([self.path])
        if digest not in (None, self.digest):
            raise InputError(
                f"the teacher {self.path} has changed since this run began; it can only go on with "
                "the same weights: restore them, or begin a new run"
            )

    def like(self, model: Any) -> Any:
        """The teacher at rest, where the student is and in its precision. It is no part of the
        student: nothing of it is learned or saved.
        """
        if self.model is None:
            opened = load(self.path).model
            if isinstance(self.objective, LabeledObjective):
                opened = self.objective.opened(opened, self.path)
            self.model = opened.eval().requires_grad_(False)
        like, mine = (next(each.parameters()) for each in (model, self.model))
        if (mine.device, mine.dtype) != (like.device, like.dtype):
            self.model = self.model.to(like.device, like.dtype)
        return self.model


# -- refusals


def check_heads(path: Path, own: dict[str, int], wanted: dict[str, int], family: str) -> None:
    """A head that a directory lacks would begin at random, and teach that."""
    optional = FAMILIES[family].model.kind == "encoder"  # others always guess words
    for name, classes in wanted.items():
        if name == "masked" and not optional:
            continue
        if name not in own:
            raise ConfigError(
                f"the teacher {path} has no head {name!r} (it has "
                f"{', '.join(map(repr, own)) or 'none'}); teach it first ('regard train' or "
                "'regard finetune')"
            )
        if classes and own[name] != classes:
            raise ConfigError(
                f"the teacher {path} knows {own[name]} classes, and this data has {classes}; "
                "give data with the classes that it has learned"
            )


def check_tokenizer(path: Path, corpus: Any) -> None:
    """Refuses a teacher that would read other tokens."""
    tokenizer = Tokenizer.open(path)
    if tokenizer is None or tokenizer.fast is None:
        return
    if tokenizer.ready.get_vocab() != corpus.tokenizer.ready.get_vocab():
        where = getattr(corpus, "directory", None) or getattr(corpus, "path", "") or "the student"
        raise ConfigError(
            f"the tokenizer of the teacher {path} is not that of {where}; a teacher and its "
            "student read the same tokens: prepare the text with --tokenizer "
            f"{path}, and make the student with it"
        )


def check_labels(path: Path, labels: Sequence[str]) -> None:
    """Classes must have one order, or what is taught is another class."""
    known = task_facts(path).get("labels") if labels else None
    if known and list(known) != list(labels):
        raise ConfigError(
            f"the teacher {path} has the classes {', '.join(map(repr, known))}, and the data has "
            f"{', '.join(map(repr, labels))}; set examples.labels to those of the teacher"
        )


def check_student(student: Any, teacher: Teacher, wanted: set[str]) -> None:
    """Refuses a student that the teacher cannot teach so."""
    own, their = student.config, teacher.config
    check_vocabulary(own, their, teacher.path)
    alike = student.family.name == teacher.family
    check_extent(own, their, teacher.family if alike else "")
    close = wanted - {"soft", "hard"}
    if close and not alike:
        raise ConfigError(
            f"the student is a {student.family.name} and the teacher a {teacher.family}; of "
            f"two kinds only answers can be compared (soft), not {', '.join(sorted(close))}"
        )
    if "cosine" in wanted and own.width != their.width:
        raise ConfigError(
            f"the student is {own.width} wide and the teacher {their.width}, and an angle is "
            "between states of one width; set cosine = 0 and hidden = 1, which learns a matrix "
            "between the two"
        )
    if "cosine" in wanted and "pointer" in (*student.extensions, *teacher.extensions):
        raise ConfigError(
            "the last states of a model with a pointer also say where it points, words by their "
            "numbers, and no angle is between those; set cosine = 0"
        )
    if "attention" in wanted:
        check_attention(own, their, teacher.family)
        check_whole(student.extensions, "the student")
        check_whole(teacher.extensions, f"the teacher {teacher.path}")
    apart = wanted & {"hidden", "embedding"} and own.width != their.width
    if apart and not hasattr(student, "fit"):
        raise ConfigError(
            "states of two widths are compared through a matrix that this student was not given; "
            "use the objective by itself, not as a part of another"
        )


def check_vocabulary(own: Any, their: Any, path: Path) -> None:
    if own.vocab_size != their.vocab_size:
        raise ConfigError(
            f"the student has {own.vocab_size:,} tokens and the teacher {path} "
            f"{their.vocab_size:,}; both must have the same vocabulary"
        )


def check_extent(own: Any, their: Any, family: str) -> None:
    """`family` is that of both, or "": layers of two kinds do not compare."""
    if own.width > their.width:
        raise ConfigError(
            f"the student is {own.width} wide and its teacher {their.width}; a student is no "
            "wider than its teacher"
        )
    for name, layers in depths(family, own).items() if family else ():
        most = depths(family, their)[name]
        if layers > most:
            whose = f"{name} of the " if name else ""
            raise ConfigError(
                f"the {whose}student has {layers} layers and its teacher {most}; a student "
                "is no deeper than its teacher"
            )


def depths(family: str, config: Any) -> dict[str, int]:
    """The layers of each stack."""
    if FAMILIES[family].model.kind != "encoder-decoder":
        return {"": config.layers}
    return {"encoder": config.layers, "decoder": config.decoder_layers or config.layers}


def check_whole(extensions: dict[str, Any], who: str) -> None:
    """Of pruned heads, one model's third may be the other's first, and one alone would be compared
    with all.
    """
    if extensions.get("pruned", {}).get("heads"):
        raise ConfigError(
            f"{who} has lost heads to pruning, and scores are compared head by head; set "
            "attention = 0"
        )


def check_attention(own: Any, their: Any, family: str) -> None:
    attends = FAMILIES[family].model.attends
    if not attends:
        raise ConfigError("an LSTM has no attention to compare; set attention = 0")
    if attends == "windows" or getattr(their, "band", None) is not None:
        raise ConfigError(
            f"this {family} sees windows, whose scores are never one matrix; set attention = 0"
        )
    for name in ("heads", "decoder_heads"):
        ours, theirs = (getattr(config, name, None) or config.heads for config in (own, their))
        if ours != theirs:
            raise ConfigError(
                f"the student has {name} = {ours} and the teacher {theirs}; scores are compared "
                "head by head: give the student as many, or set attention = 0"
            )
    if getattr(own, "mem_len", None) != getattr(their, "mem_len", None):
        raise ConfigError(
            f"the student remembers {own.mem_len} rows and the teacher {their.mem_len}; their "
            "scores have other shapes: give both the same memory, or set attention = 0"
        )


def mapped(mapping: str | Sequence[int], layers: int, depth: int) -> list[int]:
    """The teacher's layer (1 … depth) for each of a student's `layers`.

    "uniform" is TinyBERT's g(m) = m · depth / layers, rounded down; "top" are the last ones.
    """
    if mapping == "uniform":
        return [m * depth // layers for m in range(1, layers + 1)]
    if mapping == "top":
        return [depth - layers + m for m in range(1, layers + 1)]
    if isinstance(mapping, str):
        raise ConfigError(
            f'objective.mapping is {mapping!r}; it must be "uniform", "top" or a list of layers'
        )
    if len(mapping) != layers or not all(isinstance(to, int) for to in mapping):
        raise ConfigError(
            f"objective.mapping is {list(mapping)}; a student of {layers} layers needs the number "
            "of one of the teacher's for each"
        )
    for to in mapping:
        if not 1 <= to <= depth:
            raise ConfigError(
                f"objective.mapping names layer {to}, and the teacher has 1 to {depth}"
            )
    return list(mapping)
