"""What can be asked of an opened model, in the words of the command line.

    loaded = regard.load("my-run")
    loaded.classify("a warm and moving film").value       # 'good'
    loaded.tag(["Angela Merkel visited Paris ."])[0].entities
    loaded.answer("Who sat?", "The cat sat on the mat.").value
    loaded.translate(["Good morning.", "Good night."], num_beams=4)
    loaded.embed(["a film", "a book"])                     # a vector each
    loaded.reward("How are you?", ["Fine, thanks!", "What?"])  # a number each

Each takes one or many and gives one or many back. A model that has not learned what it is asked
says so, and which could. Nothing heavy is imported before the first question.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError
from regard.formats import Checkpoint

if TYPE_CHECKING:
    import numpy as np

    from regard.data.examples import Example
    from regard.decoding.filling import FilledText
    from regard.decoding.generation import Generation
    from regard.decoding.prompts import Prompt
    from regard.evaluation.predictors import ExamplePredictor
    from regard.tasks.base import Prediction


class LoadedModel(Checkpoint):
    """An opened model with everything that belongs to it, and what can be asked of it."""

    _asked: tuple[Any, ...] = ()  # what was asked last, and what answered it

    def predict(self, records: Any, **decoding: Any) -> Any:
        """What the model says of records of the task that it has learned: each a table of values by
        their roles, such as {"text": …, "mention": …}, or a text. One gives one Prediction.
        """
        from regard.data.problems import FileLine, Problems
        from regard.data.read_fields import Fields, parsed
        from regard.data.readers import ReaderOptions
        from regard.evaluation.predictors import task_of
        from regard.tasks import task

        one, kind = isinstance(records, str | dict), task(task_of(self))
        problems, options = Problems(), ReaderOptions(classes=True, offsets=False)
        examples = []
        for number, record in enumerate([records] if one else records, 1):
            place = FileLine(f"record {number}")
            values = kind.from_texts([record], place) if isinstance(record, str) else dict(record)
            examples.append(parsed(place, values, Fields(kind, {}), problems, options))
        problems.refuse()
        bare = [example.without_gold() for example in examples if example is not None]
        return given_back(ask(self, (kind.name,), bare, decoding), one)

    # -- labels

    def classify(
        self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None, **options: Any
    ) -> Any:
        """The class of a text, or of two, as a Prediction: `value`, `score` (its probability) and
        the `scores` of all classes.
        """
        return labels(self, ("classify", "entail", "similar"), texts, pairs, options)

    def entail(self, premises: str | Sequence[str], hypotheses: str | Sequence[str]) -> Any:
        """The class of a premise and a hypothesis."""
        return labels(self, ("entail", "classify"), premises, hypotheses, {})

    def similar(self, texts: str | Sequence[str], others: str | Sequence[str]) -> Any:
        """How similar two texts are: a number, or a class where it was learned so."""
        return labels(self, ("similar",), texts, others, {})

    def tag(self, sentences: str | Sequence[str | Sequence[str]]) -> Any:
        """The tags of sentences: each a text, which is cut into words here, or a list of words.

        One text gives one Tagging; a list, whatever it holds, is a list of sentences.
        """
        from regard.data.examples import Tagged
        from regard.tasks.tag import WORD, tagging

        given, one = listed(sentences)
        cut = [WORD.findall(s) if isinstance(s, str) else [*map(str, s)] for s in given]
        for number, words in enumerate(cut, 1):
            if not words or not all(words):
                raise InputError(f"sentence {number:,} has no words, or an empty one")
        visible([" ".join(words) for words in cut], "sentence")
        found = ask(self, ("tag",), [Tagged(tuple(words)) for words in cut], {})
        known = self._asked[-1].labels if found else []
        made = [tagging(words, said, known) for words, said in zip(cut, found, strict=True)]
        return given_back(made, one)

    def answer(self, question: str | Sequence[str], passage: str | Sequence[str]) -> Any:
        """The words of a passage that answer a question, "" where none do. Many questions may be
        asked of one passage.
        """
        from regard.data.examples import Question

        first, one = listed(question)
        second = beside(passage, len(first), "questions", "passages", spread=True)
        visible(first, "question")
        visible(second, "passage")
        examples = [Question(q, p) for q, p in zip(first, second, strict=True)]
        return given_back(ask(self, ("answer",), examples, {}), one)

    def choose(
        self,
        premise: str | Sequence[str],
        choices: Sequence[str] | Sequence[Sequence[str]],
        asks: str | Sequence[str] | None = None,
    ) -> Any:
        """The number of the best alternative, counted from 0. `asks` is what is asked of the
        premise, such as cause or effect.
        """
        from regard.data.examples import MultipleChoice

        first, one = listed(premise)
        lists: list[Any] = [choices] if one else list(choices)
        for each in lists:
            if isinstance(each, str) or len(each) < 2:
                raise InputError(f"choices are {each!r}; give a list of at least two texts")
            visible(each, "choice")
        visible(first, "premise")
        kinds: list[Any] = [None] * len(first)
        if asks is not None:
            kinds = beside(asks, len(first), "premises", "questions", spread=True)
        if len(lists) != len(first):
            raise InputError(
                f"{len(first):,} premises but {len(lists):,} lists of choices; give one for each"
            )
        examples = [
            MultipleChoice(text, tuple(several), kind)
            for text, several, kind in zip(first, lists, kinds, strict=True)
        ]
        return given_back(ask(self, ("choose",), examples, {}), one)

    def reward(
        self,
        prompts: str | Sequence[str | Sequence[str]],
        replies: str | Sequence[str],
    ) -> Any:
        """What a reward model thinks of replies: a number each, of which only differences mean
        anything. Many replies may be judged for one prompt; a prompt may be a list of turns.
        """
        from regard.data.examples import Preference
        from regard.methods.preference.run import check_reward

        check_reward(self)
        texts, one = listed(replies)
        visible(texts, "reply")
        given: list[Any] = [prompts] * len(texts) if isinstance(prompts, str) else [*prompts]
        if len(given) != len(texts):
            raise InputError(
                f"{len(given):,} prompts but {len(texts):,} replies; give one for each"
            )
        asked = [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in given]
        examples = [Preference(a, text) for a, text in zip(asked, texts, strict=True)]
        found = ask(self, ("prefer",), examples, {})
        return given_back([float(said.value) for said in found], one)

    # -- texts

    def translate(self, texts: str | Sequence[str], **decoding: Any) -> Any:
        """Translations as Predictions, whose `value` is the text; `decoding` as in generate."""
        return rewritten(self, "translate", texts, decoding)

    def summarize(self, texts: str | Sequence[str], **decoding: Any) -> Any:
        """Summaries as Predictions, whose `value` is the text; `decoding` as in generate."""
        return rewritten(self, "summarize", texts, decoding)

    def converse(
        self, turns: str | Sequence[str] | Sequence[Sequence[str]], **decoding: Any
    ) -> Any:
        """The reply to a turn, or to the last of several; a list of lists is many dialogues."""
        from regard.data.examples import DialogueExample

        one = isinstance(turns, str) or all(isinstance(turn, str) for turn in turns)
        talks: list[Any] = [[turns] if isinstance(turns, str) else turns] if one else [*turns]
        for talk in talks:
            if isinstance(talk, str) or not talk or not talk[-1].strip():
                raise InputError("a dialogue is a list of turns, and the last one says something")
        examples = [DialogueExample((*talk, "")) for talk in talks]
        return given_back(ask(self, ("converse",), examples, decoding), one)

    def generate(self, prompts: Prompt | Sequence[Prompt], **options: Any) -> Any:
        """What a model goes on with: a Generation for each prompt, a list of them where
        `num_samples` or `num_return_sequences` ask for several. `regard.decoding.DecodingOptions`
        names every option.
        """
        from regard.decoding.generation import generate

        made: list[Any] = generate(self, prompts, **options)
        if options.get("num_samples", 1) == 1 and options.get("num_return_sequences", 1) == 1:
            made = [found[0] for found in made]
        ids = not isinstance(prompts, str) and len(prompts) > 0 and isinstance(prompts[0], int)
        return given_back(made, isinstance(prompts, str) or ids)

    def stream(self, prompt: Prompt, **options: Any) -> Generator[str, None, Generation]:
        """The same text piece by piece, as soon as it is certain."""
        from regard.decoding.generation import stream

        return stream(self, prompt, **options)

    def fill(self, texts: str | Sequence[str], **options: Any) -> FilledText | list[FilledText]:
        """Texts with their blanks ([MASK] or ___) filled; options top, order, tokens, batch."""
        from regard.decoding.filling import fill

        given, one = listed(texts)
        made: Any = given_back(fill(self, given, **options), one)
        return made

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: str = "mean",
        layer: int = -1,
        normalize: bool = True,
        **options: Any,
    ) -> np.ndarray:
        """A vector [width] for a text, a row of [texts, width] for each of many; options length and
        precision. See regard/evaluation/embeddings.py.
        """
        from regard.evaluation.embeddings import embed

        given, one = listed(texts)
        made = embed(
            self,
            given,
            pooling=pooling,
            layer=layer,
            normalize=normalize,
            **options,
        )
        vectors: np.ndarray = made[0] if one else made
        return vectors


def load(path: str | os.PathLike[str], **options: Any) -> LoadedModel:
    """Opens a model directory, or a name of the hub that is on this machine.

    Options are `download` (fetch a name of the hub), `ignore_unknown`, `heads` and `dtype`, as
    `regard.formats.directory.load` says.
    """
    from regard.formats import directory

    found = directory.load(path, **options)
    return LoadedModel(found.model, found.tokenizer, found.source, found.path)


# -- how they ask


def ask(
    loaded: Any, tasks: tuple[str, ...], examples: Sequence[Example], options: dict[str, Any]
) -> list[Prediction]:
    """A warning says how many texts were too long to be read whole."""
    if not examples:
        return []
    asked = predictor(loaded, tasks, options)
    before = asked.cut
    found = asked(examples)
    if asked.cut > before:
        warnings.warn(
            f"{asked.cut - before:,} texts are longer than the model reads and were cut",
            stacklevel=4,
        )
    return found


def predictor(loaded: Any, tasks: tuple[str, ...], options: dict[str, Any]) -> ExamplePredictor:
    """What answers, made once for the same question in a row."""
    from regard.evaluation.predictors import check_task, predictor_for

    held = (tasks, options, loaded.model, loaded.tokenizer, loaded.path)
    if loaded._asked and all(map(same, loaded._asked, held)):
        known: ExamplePredictor = loaded._asked[-1]
        return known
    task = check_task(loaded, tasks)
    made = predictor_for(loaded, task=task, **options)
    loaded._asked = (*held, made)
    return made


def labels(
    loaded: Any,
    tasks: tuple[str, ...],
    texts: str | Sequence[str],
    others: str | Sequence[str] | None,
    options: dict[str, Any],
) -> Any:
    """Of texts, or of pairs of them."""
    from regard.data.examples import Labelled

    first, one = listed(texts)
    visible(first, "text")
    second: list[str | None] = [None] * len(first)
    if others is not None:
        second = [*beside(others, len(first), "texts", "second texts")]
        visible(second, "second text")
    examples = [Labelled(a, b) for a, b in zip(first, second, strict=True)]
    return given_back(ask(loaded, tasks, examples, options), one)


def rewritten(loaded: Any, task: str, texts: str | Sequence[str], decoding: dict[str, Any]) -> Any:
    from regard.data.examples import TextPair

    given, one = listed(texts)
    visible(given, "text")
    return given_back(ask(loaded, (task,), [TextPair(text) for text in given], decoding), one)


def same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, tuple | dict | Path) and bool(one == other))


def listed(given: Any) -> tuple[list[Any], bool]:
    """Many, and whether it was one."""
    if isinstance(given, str):
        return [given], True
    return list(given), False


def visible(texts: Sequence[Any], what: str) -> None:
    """Refuses what a model would have nothing to read of, or could not."""
    from regard.decoding.prompts import readable

    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{what} {number:,} is {text!r}; give a text that is not blank")
        readable(text)


def given_back(found: Sequence[Any], one: bool) -> Any:
    return found[0] if one else list(found)


def beside(
    given: str | Sequence[str], count: int, what: str, other: str, *, spread: bool = False
) -> list[str]:
    """As many as there are of the other; `spread`: one for all."""
    second = [given] if isinstance(given, str) else list(given)
    if spread and isinstance(given, str):
        second = second * count
    if len(second) != count:
        raise InputError(f"{count:,} {what} but {len(second):,} {other}; give one for each")
    return second
