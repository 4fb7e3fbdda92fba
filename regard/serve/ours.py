"""Our own routes, for what other servers do not offer: /classify /tag /answer /choose /link
/translate /summarize /fill. Each answers {"model": …, "results": […]}, a result for each input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field

from regard.api import LoadedModel, check_texts, predictor
from regard.core.errors import RequestError
from regard.data.examples import TextPair
from regard.decoding.batcher import Continuation
from regard.serve.asking import (
    ask,
    check_input,
    check_rows,
    generations,
    in_thread,
    state_of,
    write,
)
from regard.serve.encoders import MOST, Texts, classified, lengths
from regard.serve.models import TASKS, ServedModel
from regard.serve.openai import limited
from regard.serve.schemas import Body, DecodingFields
from regard.tasks.link import EntityCandidate, Mention
from regard.tasks.text_forms import LabelWords

router = APIRouter(tags=["Tasks"])
Answer = dict[str, Any]
ModelName = Annotated[
    str | None,
    Field(description="A served model; it may be left out if there is only one."),
]


def example(**fields: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [fields]})


class ClassifyBody(Body):
    model_config = example(texts=["a lovely film", "two wasted hours"])
    model: ModelName = None
    texts: str | Texts
    pairs: Annotated[str | Texts | None, Field(description="The second text of each pair.")] = None
    truncate: bool = False


class TagBody(Body):
    model_config = example(texts=["Angela Merkel visited Paris ."])
    model: ModelName = None
    texts: Annotated[
        str | Annotated[list[str | Texts], Field(min_length=1, max_length=MOST)],
        Field(description="Sentences; each is a text, or a list of its words."),
    ]


class AnswerBody(Body):
    model_config = example(question="Who sat?", passage="The cat sat on the mat.")
    model: ModelName = None
    question: str | Texts
    passage: Annotated[str | Texts, Field(description="One for each question, or one for all.")]


class ChooseBody(Body):
    model_config = example(premise="The man fell.", choices=["He hurt his leg.", "He flew."])
    model: ModelName = None
    premise: str
    choices: Annotated[list[str], Field(min_length=2, max_length=64)]
    asks: Annotated[str | None, Field(description="The question, such as cause or effect.")] = None
    truncate: bool = False


class EntityBody(Body):
    name: str
    description: str = ""


class LinkBody(Body):
    model_config = example(
        text="Paris is the capital of France.", mention="Paris",
        candidates=[{"name": "Paris", "description": "a city"},
                    {"name": "Paris Hilton", "description": "a person"}],
    )  # fmt: skip
    model: ModelName = None
    text: str
    mention: Annotated[str, Field(description="Words of the text.")]
    candidates: Annotated[
        list[str | EntityBody] | None,
        Field(min_length=1, max_length=64,
              description="Entities; a model with a graph knows some by itself."),
    ] = None  # fmt: skip
    truncate: bool = False

    def record(self) -> dict[str, Any]:
        """Returns what `predict` reads."""
        record: dict[str, Any] = {"text": self.text, "mention": self.mention}
        if self.candidates is not None:
            record["candidates"] = [
                one if isinstance(one, str) else one.model_dump() for one in self.candidates
            ]
        return record


class WriteBody(DecodingFields):
    model_config = example(texts=["Good morning."], num_beams=4)
    model: ModelName = None
    texts: str | Texts
    prefix: Annotated[
        str | None, Field(description="For a published T5: 'translate English to German: '.")
    ] = None
    truncate: bool = False


class FillBody(Body):
    model_config = example(texts="The [MASK] sat on the mat.")
    model: ModelName = None
    texts: str | Texts
    top_k: Annotated[int, Field(ge=1, le=64)] = 5
    order: Literal["confident", "left", "each"] = "confident"
    max_new_tokens: Annotated[int, Field(ge=1, le=64)] = 10


def several(texts: str | Sequence[Any]) -> list[Any]:
    return [texts] if isinstance(texts, str) else list(texts)


def results(served: ServedModel, rows: Iterable[Any]) -> Answer:
    return {"model": served.name, "results": list(rows)}


def plain(value: Any) -> Any:
    """Returns a prediction's value as JSON has it."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return [plain(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value


def shown(prediction: Any) -> Answer:
    return {
        "value": plain(prediction.value),
        "score": plain(prediction.score),
        "scores": plain(prediction.scores),
    }


# -- routes


@router.post("/classify", summary="The class of each text, or pair of texts")
async def classify(request: Request, body: ClassifyBody) -> Answer:
    served = state_of(request).models.find(body.model)
    first = several(body.texts)
    second: list[Any] = [None] * len(first) if body.pairs is None else several(body.pairs)
    if len(first) != len(second):
        raise RequestError(
            f"there are {len(first)} texts and {len(second)} second texts; give one for each",
            param="pairs",
        )
    pairs = list(zip(first, second, strict=True))
    predictions = await classified(request, served, pairs, body.truncate)
    return results(served, map(shown, predictions))


@router.post("/tag", summary="The tag of each word, and the entities")
async def tag(request: Request, body: TagBody) -> Answer:
    served, sentences = state_of(request).models.find(body.model), several(body.texts)

    def row(tagged: Any) -> Answer:
        entities = [plain(entity._asdict()) for entity in tagged.entities]
        return {"words": tagged.words, "tags": tagged.tags, "entities": entities,
                "score": plain(tagged.score)}  # fmt: skip

    texts = [each if isinstance(each, str) else " ".join(each) for each in sentences]
    return await asked(
        request, served, "tag", sentences, lambda loaded: loaded.tag, row, texts=texts
    )


@router.post("/answer", summary="The words of a passage that answer a question")
async def answer(request: Request, body: AnswerBody) -> Answer:
    served = state_of(request).models.find(body.model)
    questions = several(body.question)
    passages = [body.passage] * len(questions) if isinstance(body.passage, str) else body.passage
    if len(passages) != len(questions):
        raise RequestError(
            f"there are {len(questions)} questions and {len(passages)} passages; give one for "
            "each, or one for all", param="passage",
        )  # fmt: skip

    def call(loaded: LoadedModel) -> Any:
        return lambda rows: loaded.answer([r[0] for r in rows], [r[1] for r in rows])

    pairs = list(zip(questions, passages, strict=True))
    return await asked(request, served, "answer", pairs, call, shown, texts=[*questions, *passages])


@router.post("/choose", summary="The best of several choices")
async def choose(request: Request, body: ChooseBody) -> Answer:
    served = state_of(request).models.find(body.model)

    def call(loaded: LoadedModel) -> Any:
        def together(rows: list[Any]) -> Any:
            asks = None if rows[0][2] is None else [row[2] for row in rows]
            return loaded.choose([row[0] for row in rows], [row[1] for row in rows], asks)

        return together

    inputs = [(body.premise, body.choices, body.asks)]
    limit = None
    if "choose" in served.facts.verbs and not body.truncate:
        async with served.use() as loaded:
            limit = predictor(loaded, TASKS["choose"], {}).length
            pairs = [(body.premise, choice) for choice in body.choices]
            await in_thread(lengths, served, loaded, pairs, limit, False)
    texts = [body.premise, *body.choices]
    return await asked(request, served, "choose", inputs, call, shown, body.asks is None, texts)


@router.post("/link", summary="The entity that words of a text mean")
async def link(request: Request, body: LinkBody) -> Answer:
    served = state_of(request).models.find(body.model)
    record = body.record()
    candidates = [
        EntityCandidate(one) if isinstance(one, str) else EntityCandidate(**one)
        for one in record.get("candidates", ())
    ]
    if "link" in served.facts.verbs:
        async with served.use() as loaded:
            limit = predictor(loaded, TASKS["link"], {}).length
            inputs = Mention(body.text, body.mention, tuple(candidates)).inputs()
            pairs = [(text, choice or None) for text, choice in inputs]
            await in_thread(lengths, served, loaded, pairs, limit, body.truncate)
    return await asked(
        request, served, "link", [record], lambda loaded: loaded.predict, shown,
        body.candidates is None, [body.text, body.mention],
    )  # fmt: skip


@router.post("/fill", summary="The likeliest words for the blanks of a text")
async def fill(request: Request, body: FillBody) -> Answer:
    served, texts = state_of(request).models.find(body.model), several(body.texts)
    options = {"top_k": body.top_k, "order": body.order, "max_new_tokens": body.max_new_tokens}

    def row(filled: Any) -> Answer:
        blanks = [
            [{"text": c.text, "ids": c.ids, "probability": c.probability} for c in blank]
            for blank in filled.blanks
        ]
        return {"text": filled.text, "blanks": blanks}

    def call(loaded: LoadedModel) -> Any:
        return lambda rows: loaded.fill(rows, **options)

    return await asked(request, served, "fill", texts, call, row, tuple(options.items()), texts)


@router.post("/translate", summary="Translate texts")
async def translate(request: Request, body: WriteBody) -> Answer:
    return await wrote(request, body, "translate")


@router.post("/summarize", summary="Summarize texts")
async def summarize(request: Request, body: WriteBody) -> Answer:
    return await wrote(request, body, "summarize")


# -- how they ask


async def asked(
    request: Request,
    served: ServedModel,
    verb: str,
    inputs: Sequence[Any],
    call: Callable[[LoadedModel], Any],
    row: Callable[[Any], Answer],
    kind: Any = None,
    texts: Sequence[str] = (),
) -> Answer:
    """Answers inputs by a method of the model, together with those of other requests."""
    served.check(verb)
    async with served.use() as loaded:
        limit = served.options.max_input_tokens
        await in_thread(lengths, served, loaded, [(t, None) for t in texts], limit, False)
        method = await in_thread(call, loaded)
        answers = await ask(request, served, method, inputs, (verb, kind))
    return results(served, map(row, answers))


async def wrote(request: Request, body: WriteBody, task: str) -> Answer:
    """Answers with texts that the model writes, in the batch of all texts that it writes."""
    served, texts = state_of(request).models.find(body.model), several(body.texts)
    served.check(task)
    options = body.decoding() | ({} if body.prefix is None else {"prefix": body.prefix})
    async with served.use() as loaded:
        answers, work = await in_thread(sources, served, loaded, task, options, texts, body)
        written = await generations(request, served, write(request, served, work))
    examples = [TextPair(text) for text in texts]
    words = LabelWords(answers.kind.closed(examples, answers.labels), answers.tokenizer)
    rows = [
        shown(answers.prediction(example_, best[0], words))
        | {"finish_reason": best[0].reason, "tokens": len(best[0].ids)}
        | {"source_ids": list(each.prompt), "ids": list(best[0].ids)}
        for example_, each, best in zip(examples, work, written, strict=True)
    ]
    return results(served, rows)


def sources(
    served: ServedModel,
    loaded: LoadedModel,
    task: str,
    options: dict[str, Any],
    texts: Sequence[str],
    body: WriteBody,
) -> tuple[Any, list[Continuation]]:
    """Returns the predictor of a task and the prompts of the texts, as the Python call has them."""
    check_texts(texts, "text")
    answers: Any = predictor(loaded, (task,), options)
    limited(served, answers.options, options)
    check_rows(served, answers.decoder)
    work = []
    for number, text in enumerate(texts):
        (ids,), cut = answers.scribe.sources([TextPair(text)], answers.room)
        if cut and not body.truncate:
            assert loaded.tokenizer is not None
            check_input(served, loaded.tokenizer.encode(text), answers.room - 1, "text")
        check_input(served, ids, None, "text")
        work.append(Continuation(answers.decoder, ids, number))
        if work[-1].most > served.options.max_new_tokens:
            raise RequestError(
                f"the text may grow to {work[-1].most:,} tokens, and this server writes at most "
                f"{served.options.max_new_tokens:,}; set max_tokens", param="max_tokens",
            )  # fmt: skip
    return answers, work
