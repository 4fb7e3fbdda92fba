"""The teacher of a distillation: loads it once, and checks whether a student fits it."""

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
    """The teacher. At first only its files are read; `like` loads its weights when they are needed.
    `digest` is the digest of its weights when the run began."""

    def __init__(self, path: str | None, objective: Objective, digest: str | None = None) -> None:
        if not path:
            raise ConfigError("objective.teacher is missing; give the directory of a model")
        self.path, self.objective = locate(path, False), objective
        self.family, self.config, heads, self.extensions = model_facts(self.path)
        self.pair = FAMILIES[self.family].model.kind == "encoder-decoder"
        self.layers = depths(self.family, self.config)
        self.depth = self.config.layers + ("pointer" in self.extensions)  # tensors of its state
        self.model: Any = None
        check_heads(self.path, heads, objective.heads() or {}, self.family)
        check_tokenizer(self.path, objective.corpus)
        if isinstance(objective, LabeledObjective):
            check_labels(self.path, objective.corpus.labels)
        self.digest = weights_digest([self.path])
        if digest not in (None, self.digest):
            raise InputError(
                f"the teacher {self.path} has changed since this run began; a run resumes only "
                "with the same weights: restore them, or begin a new run"
            )

    def like(self, model: Any) -> Any:
        """Returns the teacher in evaluation mode, on the device and in the dtype of the student. It
        is no submodule of the student, so it is neither trained nor saved."""
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
    """Raises ConfigError if the teacher lacks a head: the head would start at random, and the
    student would learn noise."""
    optional = FAMILIES[family].model.kind == "encoder"  # others always predict tokens
    for name, classes in wanted.items():
        if name == "masked" and not optional:
            continue
        if name not in own:
            raise ConfigError(
                f"the teacher {path} has no head {name!r} (it has "
                f"{', '.join(map(repr, own)) or 'none'}); train it first ('regard train' or "
                "'regard finetune')"
            )
        if classes and own[name] != classes:
            raise ConfigError(
                f"the teacher {path} has {own[name]} classes, and the data has {classes}; give "
                "data with the classes that the teacher has learned"
            )


def check_tokenizer(path: Path, corpus: Any) -> None:
    """Raises ConfigError for a teacher with another tokenizer."""
    tokenizer = Tokenizer.open(path)
    if tokenizer is None or tokenizer.fast is None:
        return
    if tokenizer.ready.get_vocab() != corpus.tokenizer.ready.get_vocab():
        where = getattr(corpus, "directory", None) or getattr(corpus, "path", "") or "the student"
        raise ConfigError(
            f"the tokenizer of the teacher {path} differs from that of {where}; a teacher and its "
            "student must read the same tokens: prepare the text with --tokenizer "
            f"{path}, and make the student with it"
        )


def check_labels(path: Path, labels: Sequence[str]) -> None:
    """Raises ConfigError if the classes of the teacher and of the data differ in content or order:
    the student would learn the wrong class."""
    known = task_facts(path).get("labels") if labels else None
    if known and list(known) != list(labels):
        raise ConfigError(
            f"the teacher {path} has the classes {', '.join(map(repr, known))}, and the data has "
            f"{', '.join(map(repr, labels))}; set examples.labels to those of the teacher"
        )


def check_student(student: Any, teacher: Teacher, wanted: set[str]) -> None:
    """Raises ConfigError for a student that cannot learn these losses from the teacher."""
    own, their = student.config, teacher.config
    check_vocabulary(own, their, teacher.path)
    alike = student.family.name == teacher.family
    check_extent(own, their, teacher.family if alike else "")
    close = wanted - {"soft", "hard"}
    if close and not alike:
        raise ConfigError(
            f"the student is a {student.family.name} and the teacher a {teacher.family}; two "
            f"families can only compare logits (soft); set {', '.join(sorted(close))} to 0"
        )
    if "cosine" in wanted and own.width != their.width:
        raise ConfigError(
            f"the student is {own.width} wide and the teacher {their.width}, and the cosine "
            "needs states of one width; set cosine = 0 and hidden = 1, which learns a matrix "
            "between the two"
        )
    if "cosine" in wanted and "pointer" in (*student.extensions, *teacher.extensions):
        raise ConfigError(
            "the last hidden states of a model with a pointer also hold token ids, and a cosine of "
            "ids has no meaning; set cosine = 0"
        )
    if "attention" in wanted:
        check_attention(own, their, teacher.family)
        check_whole(student.extensions, "the student")
        check_whole(teacher.extensions, f"the teacher {teacher.path}")
    apart = wanted & {"hidden", "embedding"} and own.width != their.width
    if apart and not hasattr(student, "fit"):
        raise ConfigError(
            "states of two widths are compared through a matrix that this student does not have; "
            "use the objective by itself, not as a part of another"
        )


def check_vocabulary(own: Any, their: Any, path: Path) -> None:
    if own.vocab_size != their.vocab_size:
        raise ConfigError(
            f"the student has a vocabulary of {own.vocab_size:,} tokens and the teacher {path} one "
            f"of {their.vocab_size:,}; both must have the same vocabulary"
        )


def check_extent(own: Any, their: Any, family: str) -> None:
    """Raises ConfigError if the student is larger than its teacher. `family` is the family of both,
    or "" if they differ: layers of different families are not compared."""
    if own.width > their.width:
        raise ConfigError(
            f"the student is {own.width} wide and its teacher {their.width}; a student must "
            "not be wider than its teacher"
        )
    for name, layers in depths(family, own).items() if family else ():
        most = depths(family, their)[name]
        if layers > most:
            whose = f"{name} of the " if name else ""
            raise ConfigError(
                f"the {whose}student has {layers} layers and its teacher {most}; a student must "
                "not be deeper than its teacher"
            )


def depths(family: str, config: Any) -> dict[str, int]:
    """Returns the number of layers of each stack."""
    if FAMILIES[family].model.kind != "encoder-decoder":
        return {"": config.layers}
    return {"encoder": config.layers, "decoder": config.decoder_layers or config.layers}


def check_whole(extensions: dict[str, Any], who: str) -> None:
    """Raises ConfigError for a model with pruned heads: its third head may correspond to the other
    model's first, and a single head would be compared with all heads."""
    if extensions.get("pruned", {}).get("heads"):
        raise ConfigError(
            f"{who} has pruned heads, and attention scores are compared head by head; set "
            "attention = 0"
        )


def check_attention(own: Any, their: Any, family: str) -> None:
    attends = FAMILIES[family].model.attends
    if not attends:
        raise ConfigError("an LSTM has no attention to compare; set attention = 0")
    if attends == "windows" or getattr(their, "band", None) is not None:
        raise ConfigError(
            f"the scores of this {family} are windows and never one matrix; set attention = 0"
        )
    for name in ("heads", "decoder_heads"):
        ours, theirs = (getattr(config, name, None) or config.heads for config in (own, their))
        if ours != theirs:
            raise ConfigError(
                f"the student has {name} = {ours} and the teacher {theirs}; scores are compared "
                "head by head: give the student the same number, or set attention = 0"
            )
    if getattr(own, "mem_len", None) != getattr(their, "mem_len", None):
        raise ConfigError(
            f"the student has mem_len = {own.mem_len} and the teacher {their.mem_len}, so their "
            "scores have different shapes: give both the same mem_len, or set attention = 0"
        )


def mapped(mapping: str | Sequence[int], layers: int, depth: int) -> list[int]:
    """Returns the teacher's layer (1 … depth) for each of the student's `layers`.

    "uniform" is TinyBERT's g(m) = m · depth / layers, rounded down; "top" are the teacher's last
    layers.
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
            f"objective.mapping is {list(mapping)}; a student of {layers} layers needs a list of "
            f"{layers} layer numbers of the teacher"
        )
    for to in mapping:
        if not 1 <= to <= depth:
            raise ConfigError(
                f"objective.mapping names layer {to}; the teacher has the layers 1 to {depth}"
            )
    return list(mapping)
