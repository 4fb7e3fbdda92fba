"""The methods of a loaded model. Their names are those of the command line.

    loaded = regard.load("my-run")
    batch = loaded.tokenizer(["a film", "a long book"], return_tensors="pt")
    loaded.logits(**batch)                                 # [2, tokens, vocab_size]
    loaded.generate("Once upon a time", max_new_tokens=20).text
    loaded.classify("a warm and moving film").value       # 'good'
    loaded.tag(["Angela Merkel visited Paris ."])[0].entities
    loaded.answer("Who sat?", "The cat sat on the mat.").value
    loaded.translate(["Good morning.", "Good night."], num_beams=4)
    loaded.embed(["a film", "a book"])                     # one vector per text
    loaded.reward("How are you?", ["Fine, thanks!", "What?"])  # one number per reply
    loaded.ablate("the cat sat on the", heads=[(3, 2)])    # what changes without a head

Each method takes one input or a list, and returns one result or a list. A model that was not
trained for a task raises an error that names the models that can learn it. Nothing heavy is
imported before the first call.
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
    from regard.decoding.dialogue import Conversation
    from regard.decoding.filling import FilledText
    from regard.decoding.generation import Generation
    from regard.decoding.prompts import Prompt
    from regard.evaluation.predictors import ExamplePredictor
    from regard.lab.deeper.ablate import Ablation, AblationTable
    from regard.lab.deeper.attribute import Attribution
    from regard.lab.deeper.lens import Lens
    from regard.lab.deeper.patch import Patching
    from regard.tasks.base import Prediction


class LoadedModel(Checkpoint):
    """A loaded model with its tokenizer and config, and with methods for every task."""

    _asked: tuple[Any, ...] = ()  # the last tasks and options, and their predictor

    def _repr_html_(self) -> str:
        from regard.training.result import model_html

        return model_html(self)

    def logits(self, *inputs: Tensor, head: str | None = None, **named: Any) -> Tensor:
        """Returns the logits of the output that the directory was saved for: of the vocabulary [B,
        T, vocab_size], or of the head of a task, such as [B, classes]; `head` names one of several
        heads. The arguments are those of `model`, which itself returns the hidden states."""
        from regard.models.output import answering_head

        model = self.model
        answering = answering_head(model)
        head = head or answering
        hidden = model(*inputs, **named)
        mask = named.get("attention_mask", inputs[1] if len(inputs) > 1 else None)
        scores: Tensor = model.logits(hidden) if head is None else model.read(head, hidden, mask)
        return scores

    def predict(self, records: Any, **decoding: Any) -> Any:
        """Predicts records of the task that the model was trained for. A record is a dict of values
        by role, such as {"text": …, "mention": …}, or a text. One record gives one Prediction, a
        list gives a list."""
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
        return one_or_list(ask(self, (kind.name,), bare, decoding), one)

    # -- labels

    def classify(
        self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None, **options: Any
    ) -> Any:
        """Returns the class of a text, or of a pair of texts, as a Prediction: `value`, `score`
        (its probability) and the `scores` of all classes."""
        return labels(self, ("classify", "entail", "similar"), texts, pairs, options)

    def entail(self, premises: str | Sequence[str], hypotheses: str | Sequence[str]) -> Any:
        """Returns the class of a premise and a hypothesis, as a Prediction."""
        return labels(self, ("entail", "classify"), premises, hypotheses, {})

    def similar(self, texts: str | Sequence[str], others: str | Sequence[str]) -> Any:
        """Returns how similar two texts are: a number, or a class if trained with classes."""
        return labels(self, ("similar",), texts, others, {})

    def tag(self, sentences: str | Sequence[str | Sequence[str]]) -> Any:
        """Tags sentences. A sentence is a text, which is split into words here, or a list of words.

        One text gives one TaggedSentence; a list is always a list of sentences.
        """
        from regard.data.examples import TaggedExample
        from regard.tasks.tag import WORD, tagging

        sequences, one = as_list(sentences)
        cut = [WORD.findall(s) if isinstance(s, str) else [*map(str, s)] for s in sequences]
        for number, words in enumerate(cut, 1):
            if not words or not all(words):
                raise InputError(
                    f"sentence {number:,} has no words, or an empty word; leave it out"
                )
        check_texts([" ".join(words) for words in cut], "sentence")
        predictions = ask(self, ("tag",), [TaggedExample(tuple(words)) for words in cut], {})
        known = self._asked[-1].labels if predictions else []
        taggings = [
            tagging(words, prediction, known)
            for words, prediction in zip(cut, predictions, strict=True)
        ]
        return one_or_list(taggings, one)

    def answer(self, question: str | Sequence[str], passage: str | Sequence[str]) -> Any:
        """Returns the words of a passage that answer a question, or "" if there is no answer.
        Several questions may share one passage."""
        from regard.data.examples import Question
        from regard.tasks.answer import MarkedAnswer

        first, one = as_list(question)
        second = second_texts(passage, len(first), "questions", "passages", spread=True)
        check_texts(first, "question")
        check_texts(second, "passage")
        examples = [Question(q, p) for q, p in zip(first, second, strict=True)]
        answers = ask(self, ("answer",), examples, {})
        return one_or_list([*map(MarkedAnswer.of, answers, examples)], one)

    def choose(
        self,
        premise: str | Sequence[str],
        choices: Sequence[str] | Sequence[Sequence[str]],
        asks: str | Sequence[str] | None = None,
    ) -> Any:
        """Returns the index of the best choice, counted from 0. `asks` is the question about the
        premise, such as cause or effect."""
        from regard.data.examples import MultipleChoice

        first, one = as_list(premise)
        lists: list[Any] = [choices] if one else list(choices)
        for each in lists:
            if isinstance(each, str) or len(each) < 2:
                raise InputError(f"choices are {each!r}; give a list of at least two texts")
            check_texts(each, "choice")
        check_texts(first, "premise")
        kinds: list[Any] = [None] * len(first)
        if asks is not None:
            kinds = second_texts(asks, len(first), "premises", "questions", spread=True)
        if len(lists) != len(first):
            raise InputError(
                f"there are {len(first):,} premises but {len(lists):,} lists of choices; give one "
                "list for each premise"
            )
        examples = [
            MultipleChoice(text, tuple(several), kind)
            for text, several, kind in zip(first, lists, kinds, strict=True)
        ]
        return one_or_list(ask(self, ("choose",), examples, {}), one)

    def reward(
        self,
        prompts: str | Sequence[str | Sequence[str]],
        replies: str | Sequence[str],
    ) -> Any:
        """Returns the scores that a reward model gives to replies. Only differences of scores have
        a meaning. Several replies may share one prompt; a prompt may be a list of turns."""
        from regard.data.examples import Preference
        from regard.methods.preference.run import check_reward

        check_reward(self)
        texts, one = as_list(replies)
        check_texts(texts, "reply")
        contexts: list[Any] = [prompts] * len(texts) if isinstance(prompts, str) else [*prompts]
        if len(contexts) != len(texts):
            raise InputError(
                f"there are {len(contexts):,} prompts but {len(texts):,} replies; give one prompt "
                "for each reply, or one for all"
            )
        prompt_texts = [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in contexts]
        examples = [Preference(a, text) for a, text in zip(prompt_texts, texts, strict=True)]
        predictions = ask(self, ("prefer",), examples, {})
        return one_or_list([float(prediction.value) for prediction in predictions], one)

    # -- texts

    def translate(self, texts: str | Sequence[str], **decoding: Any) -> Any:
        """Returns translations as Predictions (`value` is the text); `decoding` as in
        `generate`."""
        return predict_texts(self, "translate", texts, decoding)

    def summarize(self, texts: str | Sequence[str], **decoding: Any) -> Any:
        """Returns summaries as Predictions (`value` is the text); `decoding` as in `generate`."""
        return predict_texts(self, "summarize", texts, decoding)

    def converse(
        self, turns: str | Sequence[str] | Sequence[Sequence[str]], **decoding: Any
    ) -> Any:
        """Returns the reply to the last turn; a list of lists of turns is many dialogues."""
        from regard.data.examples import DialogueExample

        one = isinstance(turns, str) or all(isinstance(turn, str) for turn in turns)
        talks: list[Any] = [[turns] if isinstance(turns, str) else turns] if one else [*turns]
        for talk in talks:
            if isinstance(talk, str) or not talk or not talk[-1].strip():
                raise InputError("a dialogue must be a list of turns whose last turn is not empty")
        examples = [DialogueExample((*talk, "")) for talk in talks]
        return one_or_list(ask(self, ("converse",), examples, decoding), one)

    def generate(self, prompts: Prompt | Sequence[Prompt], **options: Any) -> Any:
        """Continues prompts: returns a Generation for each prompt, or a list of them if
        `num_samples` or `num_return_sequences` is above 1. `regard.decoding.DecodingOptions` lists
        every option."""
        from regard.decoding.generation import generate

        generations: list[Any] = generate(self, prompts, **options)
        counts = [options.get(name, 1) for name in ("num_samples", "num_return_sequences")]
        if counts == [1, 1] and all(len(several) == 1 for several in generations):
            generations = [several[0] for several in generations]
        ids = not isinstance(prompts, str) and len(prompts) > 0 and isinstance(prompts[0], int)
        return one_or_list(generations, isinstance(prompts, str) or ids)

    def stream(self, prompt: Prompt, **options: Any) -> Generator[str, None, Generation]:
        """Yields the text of `generate` piece by piece, as soon as each piece is certain."""
        from regard.decoding.generation import stream

        return stream(self, prompt, **options)

    def chat(
        self,
        system: str | None = None,
        *,
        max_turns: int | None = None,
        plain: bool = False,
        **options: Any,
    ) -> Conversation:
        """A conversation, as `regard chat` has it: `.say(text)` gives the answer piece by piece and
        remembers both, `.reset()` forgets. `options` are those of generate.
        """
        from regard.decoding.dialogue import Conversation

        return Conversation.begin(self, options, system, plain, max_turns)

    def fill(self, texts: str | Sequence[str], **options: Any) -> FilledText | list[FilledText]:
        """Fills the blanks ([MASK] or ___) of texts; options are `top_k`, `order`,
        `max_new_tokens` and `batch_size`."""
        from regard.decoding.filling import fill

        blanked, one = as_list(texts)
        filled: Any = one_or_list(fill(self, blanked, **options), one)
        return filled

    # -- looking deeper: layers, heads and positions are counted from 1

    def lens(self, text: str | Sequence[int], **options: Any) -> Lens:
        """The logit lens: the likeliest tokens of every row after every layer. Options are `top_k`,
        and those of `look`: `target`, `order`, `memory`, …"""
        from regard.lab.deeper.lens import lens

        return lens(self, text, **options)

    def ablate(self, text: str | Sequence[int], **options: Any) -> Ablation | AblationTable:
        """What changes in the answer without `heads`, such as [(3, 2)] or "all", or without
        `layers`. Further options are `method` ("zero" or "mean"), `token` and `position`."""
        from regard.lab.deeper.ablate import ablate

        return ablate(self, text, **options)

    def patch(
        self, clean: str | Sequence[int], corrupted: str | Sequence[int], **options: Any
    ) -> Patching:
        """How much of the clean answer comes back if states of the clean text are put into a run of
        the corrupted text. Options are `of` ("residual" or "heads"), `layers`, `positions`,
        `alignment`, `together`, `token` and `position`."""
        from regard.lab.deeper.patch import patch

        return patch(self, clean, corrupted, **options)

    def attribute(self, text: str | Sequence[int], **options: Any) -> Attribution:
        """Integrated gradients: how much each token contributes to the logit of `token` (by default
        the likeliest). Options are `position`, `measure`, `baseline` and `steps`."""
        from regard.lab.deeper.attribute import attribute

        return attribute(self, text, **options)

    def embed(
        self,
        texts: str | Sequence[str | Sequence[int]],
        pooling: str | None = None,
        layer: int = -1,
        normalize: bool | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Returns a vector [width] for one text, or a row of [texts, width] for each of many. What
        is None is as the directory says, or else the normalized mean. Further options are width,
        length and precision; see regard/evaluation/embeddings.py."""
        from regard.evaluation.embeddings import embed

        sequences, one = as_list(texts)
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


def load(path: str | os.PathLike[str], *, cache: str | None = None, **options: Any) -> LoadedModel:
    """Loads a model directory, or a model of the Hugging Face Hub that is on this machine.

    Options are `download` (fetch the model from the Hub), `revision` (its commit, tag or branch),
    `ignore_unknown`, `heads` and `dtype`;
    see `regard.formats.directory.load`. With `cache` "bf16" or "int8", the model keeps the keys and
    values of earlier tokens in these numbers, which takes half or a quarter of the memory.
    """
    from regard.formats import directory
    from regard.models.state import compact_caches

    checkpoint = directory.load(path, **options)
    if cache is not None:
        compact_caches(checkpoint.model, cache)
    return LoadedModel(**vars(checkpoint))


# -- how they ask


def ask(
    loaded: Any, tasks: tuple[str, ...], examples: Sequence[Example], options: dict[str, Any]
) -> list[Prediction]:
    """Predicts the examples. A warning says how many texts were cut because they are too long."""
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
    """Returns the predictor. It is reused as long as the task and the options stay the same."""
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
    """Predicts the labels of texts, or of pairs of texts."""
    from regard.data.examples import LabeledExample

    first, one = as_list(texts)
    check_texts(first, "text")
    second: list[str | None] = [None] * len(first)
    if others is not None:
        second = [*second_texts(others, len(first), "texts", "second texts")]
        check_texts(second, "second text")
    examples = [LabeledExample(a, b) for a, b in zip(first, second, strict=True)]
    return one_or_list(ask(loaded, tasks, examples, options), one)


def predict_texts(
    loaded: Any, task: str, texts: str | Sequence[str], decoding: dict[str, Any]
) -> Any:
    from regard.data.examples import TextPair

    sequences, one = as_list(texts)
    check_texts(sequences, "text")
    return one_or_list(ask(loaded, (task,), [TextPair(text) for text in sequences], decoding), one)


def same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, tuple | dict | Path) and bool(one == other))


def as_list(texts: Any) -> tuple[list[Any], bool]:
    """Returns a list of texts, and whether the input was a single text."""
    if isinstance(texts, str):
        return [texts], True
    return list(texts), False


def check_texts(texts: Sequence[Any], what: str) -> None:
    """Refuses a text that is blank, or that is not valid Unicode."""
    from regard.decoding.prompts import readable

    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{what} {number:,} is {text!r}; give a text that is not blank")
        readable(text)


def one_or_list(answers: Sequence[Any], one: bool) -> Any:
    return answers[0] if one else list(answers)


def second_texts(
    texts: str | Sequence[str], count: int, what: str, other: str, *, spread: bool = False
) -> list[str]:
    """Returns `count` second texts. With `spread`, a single text is used for all."""
    second = [texts] if isinstance(texts, str) else list(texts)
    if spread and isinstance(texts, str):
        second = second * count
    if len(second) != count:
        raise InputError(
            f"there are {count:,} {what} but {len(second):,} {other}; give one for each"
        )
    return second
