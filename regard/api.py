"""What can be asked of an opened model, in the words of the command line.

    loaded = regard.load("my-run")
    batch = loaded.tokenizer(["a film", "a long book"], return_tensors="pt")
    loaded.logits(**batch)                                 # [2, tokens, words]
    loaded.generate("Once upon a time", max_new_tokens=20).text
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
    from torch import Tensor

    from regard.data.examples import Example
    from regard.decoding.filling import FilledText
    from regard.decoding.generation import Generation
    from regard.decoding.prompts import Prompt
    from regard.evaluation.predictors import ExamplePredictor
    from regard.tasks.base import Prediction


class LoadedModel(Checkpoint):
    """An opened model with everything that belongs to it, and what can be asked of it."""

    _asked: tuple[Any, ...] = ()  # what was asked last, and what answered it

    def logits(self, *inputs: Tensor, head: str | None = None, **named: Any) -> Tensor:
        """The scores of what the directory was saved for: of the vocabulary [B, T, words], or of
        the head of a task, such as [B, classes]; `head` names one of several. The arguments are
        those of `model`, whose own result is the hidden states.
        """
        model = self.model
        heads = [name for name in getattr(model, "heads", ()) if name != "pool"]
        if hasattr(model, "output"):
            heads = [name for name in heads if name != "next"]
        elif not heads:
            raise InputError(
                "this model has no output to the vocabulary, and no head of a task; call .model, "
                "which gives the hidden states, or load it with a head: heads={'classify': 2}"
            )
        head = head or next(iter(heads), None)
        hidden = model(*inputs, **named)
        mask = named.get("attention_mask", inputs[1] if len(inputs) > 1 else None)
        scores: Tensor = model.logits(hidden) if head is None else model.read(head, hidden, mask)
        return scores

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
        from regard.data.examples import TaggedExample
        from regard.tasks.tag import WORD, tagging

        sequences, one = listed(sentences)
        cut = [WORD.findall(s) if isinstance(s, str) else [*map(str, s)] for s in sequences]
        for number, words in enumerate(cut, 1):
            if not words or not all(words):
                raise InputError(f"sentence {number:,} has no words, or an empty one")
        visible([" ".join(words) for words in cut], "sentence")
        predictions = ask(self, ("tag",), [TaggedExample(tuple(words)) for words in cut], {})
        known = self._asked[-1].labels if predictions else []
        taggings = [
            tagging(words, prediction, known)
            for words, prediction in zip(cut, predictions, strict=True)
        ]
        return given_back(taggings, one)

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
        contexts: list[Any] = [prompts] * len(texts) if isinstance(prompts, str) else [*prompts]
        if len(contexts) != len(texts):
            raise InputError(
                f"{len(contexts):,} prompts but {len(texts):,} replies; give one for each"
            )
        prompt_texts = [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in contexts]
        examples = [Preference(a, text) for a, text in zip(prompt_texts, texts, strict=True)]
        predictions = ask(self, ("prefer",), examples, {})
        return given_back([float(prediction.value) for prediction in predictions], one)

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

        generations: list[Any] = generate(self, prompts, **options)
        if options.get("num_samples", 1) == 1 and options.get("num_return_sequences", 1) == 1:
            generations = [several[0] for several in generations]
        ids = not isinstance(prompts, str) and len(prompts) > 0 and isinstance(prompts[0], int)
        return given_back(generations, isinstance(prompts, str) or ids)

    def stream(self, prompt: Prompt, **options: Any) -> Generator[str, None, Generation]:
        """The same text piece by piece, as soon as it is certain."""
        from regard.decoding.generation import stream

        return stream(self, prompt, **options)

    def fill(self, texts: str | Sequence[str], **options: Any) -> FilledText | list[FilledText]:
        """Texts with their blanks ([MASK] or ___) filled; options top, order, tokens, batch."""
        from regard.decoding.filling import fill

        blanked, one = listed(texts)
        filled: Any = given_back(fill(self, blanked, **options), one)
        return filled

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

        sequences, one = listed(texts)
        embedded = embed(
            self,
            sequences,
            pooling=pooling,
            layer=layer,
            normalize=normalize,
            **options,
        )
        vectors: np.ndarray = embedded[0] if one else embedded
        return vectors


def load(path: str | os.PathLike[str], **options: Any) -> LoadedModel:
    """Opens a model directory, or a name of the hub that is on this machine.

    Options are `download` (fetch a name of the hub), `ignore_unknown`, `heads` and `dtype`, as
    `regard.formats.directory.load` says.
    """
    from regard.formats import directory

    checkpoint = directory.load(path, **options)
    return LoadedModel(checkpoint.model, checkpoint.tokenizer, checkpoint.source, checkpoint.path)


# -- how they ask


def ask(
    loaded: Any, tasks: tuple[str, ...], examples: Sequence[Example], options: dict[str, Any]
) -> list[Prediction]:
    """A warning says how many texts were too long to be read whole."""
    if not examples:
        return []
    predict = predictor(loaded, tasks, options)
    before = predict.cut
    predictions = predict(examples)
    if predict.cut > before:
        warnings.warn(
            f"{predict.cut - before:,} texts are longer than the model reads and were cut",
            stacklevel=4,
        )
    return predictions


def predictor(loaded: Any, tasks: tuple[str, ...], options: dict[str, Any]) -> ExamplePredictor:
    """What answers, made once for the same question in a row."""
    from regard.evaluation.predictors import check_task, predictor_for

    key = (tasks, options, loaded.model, loaded.tokenizer, loaded.path)
    last = loaded._asked  # read once: other threads may ask something else meanwhile
    if last and all(map(same, last, key)):
        known: ExamplePredictor = last[-1]
        return known
    task = check_task(loaded, tasks)
    predict = predictor_for(loaded, task=task, **options)
    loaded._asked = (*key, predict)
    return predict


def labels(
    loaded: Any,
    tasks: tuple[str, ...],
    texts: str | Sequence[str],
    others: str | Sequence[str] | None,
    options: dict[str, Any],
) -> Any:
    """Of texts, or of pairs of them."""
    from regard.data.examples import LabeledExample

    first, one = listed(texts)
    visible(first, "text")
    second: list[str | None] = [None] * len(first)
    if others is not None:
        second = [*beside(others, len(first), "texts", "second texts")]
        visible(second, "second text")
    examples = [LabeledExample(a, b) for a, b in zip(first, second, strict=True)]
    return given_back(ask(loaded, tasks, examples, options), one)


def rewritten(loaded: Any, task: str, texts: str | Sequence[str], decoding: dict[str, Any]) -> Any:
    from regard.data.examples import TextPair

    sequences, one = listed(texts)
    visible(sequences, "text")
    return given_back(ask(loaded, (task,), [TextPair(text) for text in sequences], decoding), one)


def same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, tuple | dict | Path) and bool(one == other))


def listed(texts: Any) -> tuple[list[Any], bool]:
    """Many, and whether it was one."""
    if isinstance(texts, str):
        return [texts], True
    return list(texts), False


def visible(texts: Sequence[Any], what: str) -> None:
    """Refuses what a model would have nothing to read of, or could not."""
    from regard.decoding.prompts import readable

    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{what} {number:,} is {text!r}; give a text that is not blank")
        readable(text)


def given_back(answers: Sequence[Any], one: bool) -> Any:
    return answers[0] if one else list(answers)


def beside(
    texts: str | Sequence[str], count: int, what: str, other: str, *, spread: bool = False
) -> list[str]:
    """As many as there are of the other; `spread`: one for all."""
    second = [texts] if isinstance(texts, str) else list(texts)
    if spread and isinstance(texts, str):
        second = second * count
    if len(second) != count:
        raise InputError(f"{count:,} {what} but {len(second):,} {other}; give one for each")
    return second
