"""Routes for encoders, with the bodies of text-embeddings-inference: /embed /predict /rerank
/similarity. These bodies name no model; the query parameter `model` does if there are several."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field

from regard.api import LoadedModel, check_texts, predictor
from regard.core.errors import RequestError
from regard.serve.asking import ask, check_input, in_thread, state_of
from regard.serve.models import TASKS, ServedModel
from regard.serve.schemas import Body

router = APIRouter(tags=["Encoders"])
MOST = 256  # texts of one request
Texts = Annotated[list[str], Field(min_length=1, max_length=MOST)]
Call = tuple[Callable[[list[Any]], Sequence[Any]], Hashable]


class EmbedBody(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": "What is attention?"}]})
    inputs: str | Texts
    normalize: bool = True
    truncate: bool = False


class PredictBody(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": "a lovely film"}]})
    inputs: Annotated[
        str
        | Annotated[list[str], Field(min_length=1, max_length=2)]
        | Annotated[
            list[Annotated[list[str], Field(min_length=1, max_length=2)]],
            Field(min_length=1, max_length=MOST),
        ],
        Field(description="A text; a pair of texts; or a list of lists of one or two texts."),
    ]
    truncate: bool = False
    raw_scores: bool = False


class RerankBody(Body):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "What is a cat?", "texts": ["a pet", "a car"]}]}
    )
    query: str
    texts: Texts
    truncate: bool = False
    raw_scores: bool = False
    return_text: bool = False


class SentencesBody(Body):
    source_sentence: str
    sentences: Texts


class SimilarityBody(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"inputs": {"source_sentence": "a cat", "sentences": ["a dog", "tax"]}}]
        }
    )
    inputs: SentencesBody
    truncate: bool = False


# -- routes


@router.post("/embed", summary="Embed texts")
async def embed(request: Request, body: EmbedBody, model: str | None = None) -> list[list[float]]:
    served = state_of(request).models.find(model)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    vectors = await embedded(request, served, texts, body.truncate, body.normalize)
    return [vector.tolist() for vector in vectors]


@router.post("/predict", summary="Classify texts or pairs of texts")
async def predict(request: Request, body: PredictBody, model: str | None = None) -> list[Any]:
    served = state_of(request).models.find(model)
    inputs = body.inputs
    batch = not isinstance(inputs, str) and not isinstance(inputs[0], str)
    rows: list[Any] = list(inputs) if batch else [[inputs] if isinstance(inputs, str) else inputs]
    pairs = [(row[0], row[1] if len(row) > 1 else None) for row in rows]
    if body.raw_scores:
        raise RequestError("raw_scores is not supported; leave it out", param="raw_scores")
    predictions = await classified(request, served, pairs, body.truncate)
    answers = [ranked(prediction) for prediction in predictions]
    return answers if batch else answers[0]


@router.post("/rerank", summary="Sort texts by their similarity to a query")
async def rerank(
    request: Request, body: RerankBody, model: str | None = None
) -> list[dict[str, Any]]:
    served = state_of(request).models.find(model)
    scores = await relevances(request, served, body)
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [
        {"index": i, "score": scores[i]} | ({"text": body.texts[i]} if body.return_text else {})
        for i in order
    ]


@router.post("/similarity", summary="How similar sentences are to one")
async def similarity(
    request: Request, body: SimilarityBody, model: str | None = None
) -> list[float]:
    served = state_of(request).models.find(model)
    pair = body.inputs
    return await similarities(request, served, pair.source_sentence, pair.sentences, body.truncate)


# -- what they share with the other routes


def embedding_call(loaded: LoadedModel, normalize: bool = True) -> Call:
    def call(texts: list[str | list[int]]) -> Any:
        return loaded.embed(texts, normalize=normalize)

    return call, ("embed", normalize)


def texts_to_embed(
    served: ServedModel, loaded: LoadedModel, texts: Sequence[str | list[int]], truncate: bool
) -> list[int]:
    """Returns the number of tokens of each text; refuses those that the model cannot read."""
    assert loaded.tokenizer is not None
    limit, counts = served.facts.context, []
    around = loaded.tokenizer.encode("")  # the special tokens, which ids come without
    for text in texts:
        if isinstance(text, str):
            counts += lengths(served, loaded, [(text, None)], limit, truncate)
            continue
        check_ids(loaded, text)
        if not truncate:
            check_input(served, [*text, *around], limit, "text")
        counts.append(len(text) + len(around))
    return counts


def check_ids(loaded: LoadedModel, ids: Sequence[int]) -> None:
    most = loaded.config.vocab_size
    for token in ids:
        if not 0 <= token < most:
            raise RequestError(
                f"the input holds {token}, which is not an id of this model; ids go from 0 to "
                f"{most - 1}, or send texts", param="input",
            )  # fmt: skip


def lengths(
    served: ServedModel,
    loaded: LoadedModel,
    pairs: Sequence[tuple[str, str | None]],
    limit: int | None,
    truncate: bool,
) -> list[int]:
    assert loaded.tokenizer is not None
    counts = []
    for text, other in pairs:
        check_texts([text] if other is None else [text, other], "text")
        ids = loaded.tokenizer.encode(text, other)
        if not truncate:
            check_input(served, ids, limit, "text")
        counts.append(len(ids))
    return counts


async def embedded(
    request: Request, served: ServedModel, texts: Sequence[str], truncate: bool, normalize: bool
) -> list[np.ndarray]:
    served.check("embed")
    async with served.use() as loaded:
        await in_thread(texts_to_embed, served, loaded, texts, truncate)
        call, kind = embedding_call(loaded, normalize)
        return await ask(request, served, call, texts, kind)


async def classified(
    request: Request,
    served: ServedModel,
    pairs: Sequence[tuple[str, str | None]],
    truncate: bool,
) -> list[Any]:
    """Returns the Prediction for each text, or pair of texts."""
    served.check("classify")
    async with served.use() as loaded:
        limit = predictor(loaded, TASKS["classify"], {}).length
        await in_thread(lengths, served, loaded, pairs, limit, truncate)

        def call(rows: list[tuple[str, str | None]]) -> Any:
            second = [row[1] for row in rows if row[1] is not None]
            return loaded.classify([row[0] for row in rows], second or None)

        if len({pair[1] is None for pair in pairs}) > 1:
            raise RequestError("some inputs are single texts and some are pairs; send one kind")
        return await ask(request, served, call, pairs, ("classify", pairs[0][1] is None))


async def relevances(request: Request, served: ServedModel, body: RerankBody) -> list[float]:
    """A cross-encoder reads each text with the query: its score is from 0 to 1, the sigmoid of its
    raw score. The scores of other models are raw in any case."""
    if "rerank" not in served.facts.verbs:
        return await similarities(request, served, body.query, body.texts, body.truncate)
    async with served.use() as loaded:
        limit = predictor(loaded, TASKS["rerank"], {}).length
        pairs = [(body.query, text) for text in body.texts]
        await in_thread(lengths, served, loaded, pairs, limit, body.truncate)

        def call(rows: list[tuple[str, str]]) -> Any:
            return loaded.predict([{"query": a, "positive": b} for a, b in rows])

        scores = [float(p.value[0]) for p in await ask(request, served, call, pairs, "rerank")]
    return [log_odds(score) for score in scores] if body.raw_scores else scores


def log_odds(share: float) -> float:
    """Undoes a sigmoid; a share that was rounded to 0 or 1 is taken to be next to it."""
    share = min(max(share, sys.float_info.min), 1 - sys.float_info.epsilon / 2)
    return math.log(share / (1 - share))


async def similarities(
    request: Request, served: ServedModel, query: str, texts: Sequence[str], truncate: bool
) -> list[float]:
    """A model that was trained for similarity compares the pairs; others compare embeddings."""
    if served.facts.task == "similar" and not served.facts.labels:
        pairs = [(query, text) for text in texts]
        return [float(p.value) for p in await classified(request, served, pairs, truncate)]
    vectors = await embedded(request, served, [query, *texts], truncate, True)
    return [float(vectors[0] @ vector) for vector in vectors[1:]]


def ranked(prediction: Any) -> list[dict[str, Any]]:
    """Returns the labels of a prediction, the likeliest first."""
    scores = prediction.scores
    if not isinstance(scores, dict):
        score = prediction.score if prediction.score is not None else prediction.value
        return [{"label": str(prediction.value), "score": float(score)}]
    table = [{"label": str(label), "score": float(score)} for label, score in scores.items()]
    return sorted(table, key=lambda row: -float(row["score"]))
