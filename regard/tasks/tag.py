"""The task `tag`: a tag for every word. Tags mark entities, such as names, or parts of speech.

This file holds what needs no model: how tags are read, checked, measured and shown. The objective
that trains the head is in `tag_objective.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from regard.core.errors import InputError
from regard.data.examples import Example, TaggedExample
from regard.data.problems import FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord, as_words
from regard.data.tags import (
    OUTSIDE,
    detect,
    entities,
    is_tag,
    of_entities,
    problems,
    repair,
    scheme_of,
    split,
)
from regard.data.tags import labels as labels_of
from regard.metrics import labels as labels_metrics
from regard.metrics.base import TaskMetric
from regard.tasks.base import PROBABILITY, Prediction, Task, counted_unseen
from regard.tasks.tag_objective import Tag

if TYPE_CHECKING:
    from regard.tasks.check import Checker

SEQEVAL = {"bio": "IOB2", "bioes": "IOBES", "bilou": "IOBES"}  # bilou is measured as bioes
LETTERS = {"L": "E", "U": "S"}
ENTITY = re.compile("[BIESLU]-.")
# Matches single characters of scripts without spaces, otherwise words, and punctuation.
WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|[@#]?\w+(?:[-'’.,&/@:_]\w+)*|[^\w\s]"
)


class Entity(NamedTuple):
    """An entity: the words `first` to `last` of a sentence, counted from 0."""

    kind: str
    text: str
    first: int
    last: int


class TaggedSentence(NamedTuple):
    """A sentence with a tag for each word. `score` is the mean probability of the tags. Tags that
    do not mark entities, such as parts of speech, give no entities."""

    words: list[str]
    tags: list[str]
    entities: list[Entity]
    score: float | None

    def _repr_html_(self) -> str:
        """In a notebook: the sentence with its entities marked, or else the tag of each word."""
        from regard.report import notebook

        spans = [(e.first, e.last, e.kind) for e in self.entities]
        if not spans and not of_entities(self.tags):
            spans = [(i, i, tag) for i, tag in enumerate(self.tags)]
        pieces, at = [], 0
        for first, last, kind in spans:
            pieces += [(f"{word} ", "") for word in self.words[at:first]]
            pieces += [(" ".join(self.words[first : last + 1]), kind), (" ", "")]
            at = last + 1
        pieces += [(f"{word} ", "") for word in self.words[at:]]
        facts = [] if self.score is None else [notebook.Facts([(PROBABILITY, self.score)])]
        return notebook.rendered("", notebook.Marked(pieces), *facts)


class TagTask(Task):
    name = "tag"
    example = TaggedExample
    roles: ClassVar[Mapping[str, str]] = {
        "words": "words tokens",
        "tags": "tags ner_tags labels ner pos_tags label",
        "id": ID,
    }
    needed = ("words",)
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {1: ("words",), 2: ("words", "tags")}
    in_columns = True
    answers = ("tags",)
    varied = True
    writable = False
    between_marks = False
    heads = ("tag",)
    learned_by = Tag
    names_labels = True
    whole_lines = True
    needs_records = True

    # -- data

    def parse(self, record: FieldRecord) -> Example:
        words = as_words(record.get("words"), "words")
        if not words:
            raise BadRecord("empty-text", "the sentence has no words")
        for number, word in enumerate(words, 1):
            if not word.strip():
                raise BadRecord("empty-text", f"word {number} of {len(words)} is empty")
        tags = self.tags(record, len(words)) if record.has("tags") else None
        return TaggedExample(words, tags, record.place, record.id)

    def tags(self, record: FieldRecord, count: int) -> tuple[str, ...]:
        value = record.get("tags")
        if value is None:
            raise BadRecord("missing-label", f"no tags in {record.field('tags')!r}")
        tags = as_words(value, "tags")
        if len(tags) != count:
            raise BadRecord("ragged-line", f"{count} words but {len(tags)} tags")
        if "" in tags:
            raise BadRecord("missing-label", f"no tag for word {tags.index('') + 1}")
        return tags

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        """Returns all tags of the scheme for the entity types that occur. If no tag marks an
        entity, returns the tags that occur."""
        rows = [e.tags for e in examples if isinstance(e, TaggedExample) and e.tags is not None]
        tags = {tag for row in rows for tag in row}
        if any(map(ENTITY.match, tags)):
            self.check_labels(examples, [], "")
        if of_entities(tags):
            scheme = detect(rows)
            scheme = "bio" if scheme == "iob1" else scheme  # iob1 is learned as bio
            return labels_of({split(tag)[1] for tag in tags if tag != OUTSIDE}, scheme)
        if len(tags) < 2:
            raise InputError(
                f"every tag of the training data is {tags.pop()!r}; a tagger needs at least 2 "
                "different tags"
            )
        return sorted(tags)

    def check_labels(self, examples: Sequence[Example], known: Sequence[str], path: str) -> None:
        """Refuses tags that do not mark entities if the known tags mark entities."""
        if not of_entities(known):
            return
        for example in examples:
            tags = example.labels()
            if isinstance(example, TaggedExample) and not of_entities(tags):
                number, tag = next((i, tag) for i, tag in enumerate(tags) if not is_tag(tag))
                raise InputError(
                    f"{example.place}: word {number + 1} ({example.words[number]!r}) has the tag "
                    f"{tag!r} among tags of entities; expected O, or a letter and a type such as "
                    "B-person"
                )

    def check_tested(self, examples: Sequence[Example], known: Sequence[str]) -> None:
        self.check_labels(examples, known, "")

    def check_example(self, checker: Checker, example: Any) -> None:
        if example.tags is not None:
            checker.tags.append((example.place, example.tags))
        checker.check_known(example)

    def check_whole(self, checker: Checker, whole: FileLine) -> None:
        """Checks the sequences of BIO and similar schemes. Other tags, such as parts of speech, may
        follow one another freely."""
        if not any(ENTITY.match(tag) for tag in checker.labels):
            return
        try:
            checker.scheme = scheme = detect(tags for _, tags in checker.tags)
        except InputError as error:
            checker.problems.add(whole, "tag-sequence", str(error))
            return
        for place, tags in checker.tags:
            for wrong in problems(tags, scheme):
                try:
                    repaired = repair(tags, scheme)
                except InputError:
                    remedy, severity = "it cannot be repaired", "error"
                else:
                    remedy, severity = f"repaired: {changes(tags, repaired)}", "warning"
                word = f"word {min(wrong.place, len(tags) - 1) + 1}"
                message = f"{word}: {wrong.message}; {remedy}"
                checker.problems.add(place, "tag-sequence", message, severity)

    # -- learning and measuring

    def metric(self, labels: Sequence[str]) -> type[TaskMetric]:
        return labels_metrics.TaggingMetric if of_entities(labels) else labels_metrics.TokenAccuracy

    def metric_options(
        self, labels: Sequence[str], gold: Sequence[Any], *, strict: bool, language: str
    ) -> dict[str, Any]:
        if not strict or not of_entities(labels):
            return {}
        return {"mode": "strict", "scheme": SEQEVAL[scheme_of(labels)]}

    def kind_of(self, labels: Sequence[str]) -> str:
        return "entities" if of_entities(labels) else "a tag for each word"

    def gold(self, example: Example, labels: Sequence[str]) -> Any:
        tags = example.labels()
        return repair(tags, scheme_of(labels)) if of_entities(labels) else tags

    def readable(self, values: Sequence[Any], labels: Sequence[str]) -> list[Any]:
        """Returns the tags as seqeval reads them: it knows L and U only in its strict mode."""

        def spoken(tag: str) -> str:
            letter, hyphen, rest = tag.partition("-")
            return f"{LETTERS.get(letter, letter)}{hyphen}{rest}"

        if not of_entities(labels):
            return list(values)
        return [[spoken(tag) for tag in row] for row in values]

    def aligned(self, values: list[Any], theirs: Sequence[str], ours: Sequence[str]) -> list[Any]:
        if not of_entities(ours) or scheme_of(theirs) == scheme_of(ours):
            return values
        return [repair(tags, scheme_of(ours)) for tags in values]

    def unseen(self, examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
        """Counts the entity types, or the tags, that the model never learned."""
        entity = of_entities(known)
        kinds = {split(tag)[1] for tag in known} if entity and OUTSIDE in known else set()
        counts: Counter[str] = Counter()
        for example in examples if known else ():
            tags = example.labels()
            if entity:
                counts.update(kind for kind, _, _ in entities(tags) if kind not in kinds)
            else:
                counts.update(tag for tag in tags if tag not in known)
        return dict(counts.most_common())

    def unseen_note(self, unseen: Mapping[str, int], examples: int, known: Sequence[str]) -> str:
        what = "entities are of kinds" if of_entities(known) else "words have tags"
        return counted_unseen(unseen, what)

    # -- on the command line

    def from_texts(self, texts: list[str], place: FileLine) -> dict[str, Any]:
        return {"words": WORD.findall(texts[0])}

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        result = tagging(example.words, prediction, labels)
        if of_entities(labels):
            return "\t".join(f"{e.kind}: {e.text}" for e in result.entities) or "(no entity)"
        return " ".join(
            f"{word}/{tag}" for word, tag in zip(result.words, result.tags, strict=True)
        )

    def described(
        self, example: Any, prediction: Prediction, labels: Sequence[str]
    ) -> dict[str, Any]:
        result = tagging(example.words, prediction, labels)
        return result._asdict() | {"entities": [entity._asdict() for entity in result.entities]}


def tagging(words: Sequence[str], prediction: Prediction, known: Sequence[str]) -> TaggedSentence:
    spans = entities(prediction.value) if of_entities(known) else []
    named = [Entity(kind, " ".join(words[start:end]), start, end - 1) for kind, start, end in spans]
    return TaggedSentence(list(words), list(prediction.value), named, prediction.score)


def changes(before: Iterable[str], after: Iterable[str]) -> str:
    both = enumerate(zip(before, after, strict=True), 1)
    changed = [f"word {i} becomes {new} instead of {old}" for i, (old, new) in both if old != new]
    return ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")


TASK = TagTask()
