"""The routes of OpenAI's API: models, completions, chat completions, embeddings.

Fields that are left out have the defaults of the Python call. A field of OpenAI's that nothing here
can obey is refused unless its value changes nothing; an unknown field is refused, as OpenAI does.
Without a seed, one is drawn and told in the answer, so that the answer can be had again.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from regard.api import LoadedModel
from regard.core.errors import FormatError, RequestError
from regard.decoding.batcher import Continuation
from regard.decoding.dialogue import Conversation
from regard.decoding.generation import Decoder
from regard.decoding.generation_config import options_for
from regard.serve.asking import ask, check_input, check_rows, in_thread, state_of
from regard.serve.encoders import embedding_call, texts_to_embed
from regard.serve.models import ServedModel
from regard.serve.openai_shapes import ChatShape, CompletionShape, answered
from regard.serve.schemas import DecodingFields, ModelField

router = APIRouter(prefix="/v1", tags=["OpenAI"])
INPUTS = 2048  # the most inputs of one request for embeddings, as at OpenAI
FOREIGN: dict[str, tuple[Any, ...]] = {  # fields that nothing obeys; their values without effect
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
}


class OpenAIFields(DecodingFields):
    """What completions and chat completions share."""

    model: str = ModelField
    n: Annotated[int, Field(ge=1, le=128, description="Texts for each prompt.")] = 1
    stream: bool = False
    stream_options: dict[str, bool] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: Any = None
    store: Any = None
    metadata: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    return_token_ids: Annotated[
        bool, Field(description="Answer the ids of the prompt, and with logprobs those of tokens.")
    ] = False

    def refuse_foreign(self) -> None:
        """Refuses fields that would change the text and that nothing here obeys."""
        for name, neutral in FOREIGN.items():
            if getattr(self, name, None) not in neutral:
                raise RequestError(
                    f"{name} is not supported by this server; leave it out", 400,
                    "unsupported_parameter", name,
                )  # fmt: skip

    def decoding(self) -> dict[str, Any]:
        table = super().decoding()
        if self.n > 1:
            table["num_samples"] = self.n
        return table


class CompletionBody(OpenAIFields):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"model": "my-gpt", "prompt": "Once upon a time", "max_tokens": 20}]
        },
    )
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None

    def refuse_foreign(self) -> None:
        super().refuse_foreign()
        if self.best_of not in (None, self.n):
            raise RequestError("best_of is not supported; leave it out", param="best_of")
        if self.echo and self.logprobs is not None:
            raise RequestError("echo with logprobs is not supported; choose one", param="echo")

    def prompts(self) -> list[Any]:
        if isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int)):
            return [self.prompt]
        return list(self.prompt)


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def turn(self) -> dict[str, str]:
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatBody(OpenAIFields):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"model": "my-gpt", "messages": [{"role": "user", "content": "How are you?"}]}
            ]
        },
    )
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None

    def decoding(self) -> dict[str, Any]:
        table = super().decoding()
        if self.max_completion_tokens is not None:
            table["max_new_tokens"] = self.max_completion_tokens
        return table


class EmbeddingBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": "minilm", "input": ["a film", "a book"]}]},
    )
    model: str = ModelField
    input: Annotated[
        str
        | Annotated[list[str], Field(min_length=1, max_length=INPUTS)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[
            list[Annotated[list[int], Field(min_length=1)]],
            Field(min_length=1, max_length=INPUTS),
        ],
        Field(description="Texts, or the ids of their tokens, without special tokens."),
    ]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: Any = None

    def texts(self) -> list[Any]:
        """Returns texts and lists of ids."""
        if isinstance(self.input, str) or isinstance(self.input[0], int):
            return [self.input]
        return list(self.input)


# -- routes


@router.get("/models", summary="The served models, and what each can do")
async def list_models(request: Request) -> dict[str, Any]:
    models = state_of(request).models.models.values()
    return {"object": "list", "data": [model_card(model) for model in models]}


@router.get("/models/{name}", summary="One of the served models")
async def one_model(request: Request, name: str) -> dict[str, Any]:
    return model_card(state_of(request).models.find(name))


def model_card(model: ServedModel) -> dict[str, Any]:
    facts = model.facts
    return {
        "id": facts.name,
        "object": "model",
        "created": facts.created,
        "owned_by": "regard",
        "family": facts.family,
        "kind": facts.kind,
        "parameters": facts.parameters,
        "verbs": list(facts.verbs),
        "task": facts.task or None,
        "labels": list(facts.labels),
        "context": facts.context,
        "heads": facts.heads,
        "precision": facts.precision,
        "chat_template": facts.chat_template,
        "loaded": model.loaded is not None,
    }


@router.post("/completions", summary="Continue texts", response_model=None)
async def completions(request: Request, body: CompletionBody) -> Any:
    served = state_of(request).models.find(body.model)
    served.check("complete")
    body.refuse_foreign()
    options, seed = seeded(body)
    options["top_logprobs"] = body.logprobs or 0
    async with served.use() as loaded:
        work = await in_thread(prepared, served, loaded, options, body.prompts(), body.stream)
        shape = CompletionShape(body, loaded, work, seed)
        return await answered(request, served, shape)


@router.post("/chat/completions", summary="Answer a conversation", response_model=None)
async def chat_completions(request: Request, body: ChatBody) -> Any:
    served = state_of(request).models.find(body.model)
    served.check("chat")
    body.refuse_foreign()
    options, seed = seeded(body)
    options["top_logprobs"] = body.top_logprobs or 0
    async with served.use() as loaded:
        turns = [message.turn() for message in body.messages]
        work = await in_thread(conversing, served, loaded, options, turns, body.stream)
        shape = ChatShape(body, loaded, work, seed)
        return await answered(request, served, shape)


@router.post("/embeddings", summary="Embed texts")
async def embeddings(request: Request, body: EmbeddingBody) -> dict[str, Any]:
    served = state_of(request).models.find(body.model)
    served.check("embed")
    async with served.use() as loaded:
        width = loaded.config.width
        if body.dimensions not in (None, width):
            raise RequestError(
                f"dimensions is {body.dimensions}, and the embeddings of {served.name} have "
                f"{width}; leave it out", param="dimensions",
            )  # fmt: skip
        texts = body.texts()
        counts = await in_thread(texts_to_embed, served, loaded, texts, False)
        call, kind = embedding_call(loaded)
        vectors = await ask(request, served, call, texts, kind)
    data = [
        {"object": "embedding", "index": i, "embedding": as_format(v, body.encoding_format)}
        for i, v in enumerate(vectors)
    ]
    usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


def as_format(vector: np.ndarray, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


# -- from a body to prompts


def seeded(body: OpenAIFields) -> tuple[dict[str, Any], int]:
    """Returns the options of decoding, and the seed to tell; draws one where none is given."""
    seed = secrets.randbelow(2**31) if body.seed is None else body.seed
    return {"seed": seed} | body.decoding(), seed


def prepared(
    served: ServedModel,
    loaded: LoadedModel,
    options: dict[str, Any],
    prompts: Sequence[Any],
    stream: bool,
) -> list[Continuation]:
    """Returns the prompts of a request as the Python call would continue them."""
    decoder = Decoder(loaded, limited(served, options_for(loaded, options), options))
    check_rows(served, decoder)
    if stream:
        decoder.prompts.words()  # refuses a model without a tokenizer
    work = []
    for number, prompt in enumerate(prompts):
        ids = decoder.prompts.ids_of(prompt)
        decoder.prompts.check_known("prompt", ids)
        check_input(served, ids, served.facts.context, "prompt")
        work.append(Continuation(decoder, ids, number, stream))
    return work


def conversing(
    served: ServedModel,
    loaded: LoadedModel,
    options: dict[str, Any],
    turns: list[dict[str, str]],
    stream: bool,
) -> list[Continuation]:
    """Returns the prompt of a conversation, as `LoadedModel.chat` formats it."""
    talk = Conversation.begin(loaded, options)
    talk.turns = turns
    talk.options = limited(served, talk.options, options)
    decoder = talk.decoder = Decoder(loaded, talk.options)
    check_rows(served, decoder)
    try:
        ids = talk.prompt()
    except FormatError as error:  # a template may refuse turns, such as two of one role
        raise RequestError(str(error), param="messages") from None
    check_input(served, ids, served.facts.context, "conversation")
    return [Continuation(decoder, ids, len(turns), stream)]


def limited(served: ServedModel, chosen: Any, options: dict[str, Any]) -> Any:
    """Refuses more new tokens than the server allows; a default that is larger is cut."""
    most = served.options.max_new_tokens
    if chosen.max_new_tokens > most and "max_new_tokens" in options:
        raise RequestError(
            f"max_tokens is {chosen.max_new_tokens:,}, and this server writes at most {most:,} "
            "tokens; ask for fewer", param="max_tokens",
        )  # fmt: skip
    if chosen.max_length is not None:
        return replace(chosen, max_length=min(chosen.max_length, most))
    return replace(chosen, max_new_tokens=min(chosen.max_new_tokens, most))
