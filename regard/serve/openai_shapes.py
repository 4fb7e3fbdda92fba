"""Texts and their tokens in the shapes of OpenAI's answers, whole or as events (SSE).

The events are written here, without sse-starlette: that library patches uvicorn's signals when it
is imported and cuts off every stream as soon as a shutdown begins, where ours finish, and it waits
for a slow reader with a timer for each event, where the gate has one for each request.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from regard.api import LoadedModel
from regard.decoding.batcher import Continuation, Ended, NewToken
from regard.decoding.pieces import TokenStream
from regard.lab.look.tokens import tokens_of
from regard.serve.asking import events, state_of, write, written
from regard.serve.gate import ClientGone, as_request_error, error_body
from regard.serve.models import ServedModel

PING = 15.0  # seconds of silence after which a comment keeps a stream open
as_json = json.JSONEncoder(ensure_ascii=False).encode
REASONS = {"end": "stop", "stop": "stop", "length": "length"}


async def answered(request: Request, served: ServedModel, shape: CompletionShape) -> Any:
    """Answers with the texts of a request: whole, or as they grow."""
    if shape.body.stream:
        return await streamed(request, served, shape)
    jobs = write(request, served, shape.work)
    for number, event in await written(request, served, jobs):
        shape.add(number, event)
    return shape.whole()


class CompletionShape:
    """Collects the texts of a request, and shapes them as OpenAI does."""

    object = chunk = "text_completion"
    prefix = "cmpl-"

    def __init__(self, body: Any, loaded: LoadedModel, work: list[Continuation], seed: int) -> None:
        self.body, self.tokenizer, self.work, self.seed = body, loaded.tokenizer, work, seed
        self.id, self.created = self.prefix + secrets.token_hex(12), int(time.time())
        count = len(work) * body.n
        self.tokens: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        self.ended: list[Ended | None] = [None] * count
        self.streams: list[TokenStream | None] = [None] * count
        self.written = [0] * count

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.body.model,
            "seed": self.seed,
        }

    @property
    def wants_logprobs(self) -> bool:
        return self.body.logprobs is not None

    def add(self, number: int, event: NewToken | Ended) -> int:
        """Takes an event and returns the index of its choice."""
        index = number * self.body.n + event.index
        if isinstance(event, Ended):
            self.ended[index] = event
            self.written[index] = len(event.generation.ids)
        elif self.wants_logprobs:
            self.tokens[index].append(self.token(index, number, event))
        return index

    def token(self, index: int, number: int, event: NewToken) -> dict[str, Any]:
        """Returns a token with its text, log-probability and alternatives."""
        if self.tokenizer is None:
            text, names = f" {event.token}", [f" {token}" for token, _ in event.alternatives]
        else:
            stream = self.streams[index]
            if stream is None:
                pair = self.work[number].decoder.prompts.pair
                before = [] if pair else self.work[number].prompt
                stream = self.streams[index] = TokenStream(self.tokenizer, before)
            text = stream.add(event.token)
            names = [self.tokenizer.decode([token]) for token, _ in event.alternatives]
        best = [(name, value) for name, (_, value) in zip(names, event.alternatives, strict=True)]
        others = [
            {"id": id, "token": name or self.label(id), "logprob": value}
            for name, (id, value) in zip(names, event.alternatives, strict=True)
        ]
        return {"token": text, "logprob": event.logprob, "best": best, "id": event.token,
                "others": others}  # fmt: skip

    def label(self, id: int) -> str:
        """Returns the name of a token that is no text."""
        return tokens_of(self.tokenizer, [id])[0].text

    @property
    def wants_ids(self) -> bool:
        return bool(self.body.return_token_ids)

    def prompt_ids(self, index: int) -> dict[str, Any]:
        if not self.wants_ids:
            return {}
        return {"prompt_token_ids": self.work[index // self.body.n].prompt}

    def logprobs(self, tokens: list[dict[str, Any]], before: int = 0) -> Any:
        if not self.wants_logprobs:
            return None
        offsets, at = [], before
        for token in tokens:
            offsets.append(at)
            at += len(token["token"])
        ids: dict[str, Any] = {}
        if self.wants_ids:
            ids["token_ids"] = [token["id"] for token in tokens]
            ids["top_tokens"] = [token["others"] for token in tokens]
        return ids | {
            "tokens": [token["token"] for token in tokens],
            "token_logprobs": [token["logprob"] for token in tokens],
            "top_logprobs": [dict(token["best"]) for token in tokens] if self.body.logprobs
            else None,
            "text_offset": offsets,
        }  # fmt: skip

    def echoed(self, index: int) -> str:
        if not getattr(self.body, "echo", False):
            return ""
        prompt = self.work[index // self.body.n].prompt
        return self.tokenizer.decode(prompt) if self.tokenizer is not None else ""

    def choice(self, index: int) -> dict[str, Any]:
        ended = self.ended[index]
        assert ended is not None
        text = ended.generation.text
        if text is None:
            text = "".join(ended.generation.pieces())
        return {
            "index": index,
            "text": self.echoed(index) + text,
            "logprobs": self.logprobs(self.tokens[index]),
            "finish_reason": REASONS[ended.generation.reason],
        } | self.prompt_ids(index)

    def usage(self) -> dict[str, int]:
        read, new = sum(len(each.prompt) for each in self.work), sum(self.written)
        return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}

    def whole(self) -> dict[str, Any]:
        choices = [self.choice(index) for index in range(len(self.ended))]
        return self.head(self.object) | {"choices": choices, "usage": self.usage()}

    def first(self, index: int) -> dict[str, Any] | None:
        """Returns the piece before the first token of a stream, if there is one."""
        text, ids = self.echoed(index), self.prompt_ids(index)
        return self.piece(index, text, [], None) | ids if text or ids else None

    def piece(
        self, index: int, text: str, tokens: list[dict[str, Any]], reason: str | None
    ) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": self.logprobs(tokens) if tokens else None,
            "finish_reason": reason,
        }


class ChatShape(CompletionShape):
    object, chunk, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.body.logprobs)

    def logprobs(self, tokens: list[dict[str, Any]], before: int = 0) -> Any:
        if not self.wants_logprobs:
            return None

        def shaped(text: str, value: float) -> dict[str, Any]:
            return {"token": text, "logprob": value, "bytes": list(text.encode())}

        return {
            "content": [
                shaped(token["token"], token["logprob"])
                | {"top_logprobs": [shaped(*pair) for pair in token["best"]]}
                for token in tokens
            ]
        }

    def choice(self, index: int) -> dict[str, Any]:
        plain = super().choice(index)
        return {
            "index": index,
            "message": {"role": "assistant", "content": plain["text"]},
            "logprobs": plain["logprobs"],
            "finish_reason": plain["finish_reason"],
        } | self.prompt_ids(index)

    def first(self, index: int) -> dict[str, Any]:
        role = {"role": "assistant", "content": ""}
        piece = {"index": index, "delta": role, "logprobs": None, "finish_reason": None}
        return piece | self.prompt_ids(index)

    def piece(
        self, index: int, text: str, tokens: list[dict[str, Any]], reason: str | None
    ) -> dict[str, Any]:
        return {
            "index": index,
            "delta": {"content": text} if text else {},
            "logprobs": self.logprobs(tokens) if tokens else None,
            "finish_reason": reason,
        }


# -- streams


async def streamed(request: Request, served: ServedModel, shape: CompletionShape) -> Any:
    """Answers with events as the texts grow (SSE)."""
    jobs = write(
        request, served, shape.work
    )  # a full queue is refused with its status, before the stream
    pieces = lines(request, served, jobs, shape)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(pieces, media_type="text/event-stream", headers=headers)


async def lines(
    request: Request, served: ServedModel, jobs: list[Any], shape: CompletionShape
) -> AsyncIterator[str]:
    options = shape.body.stream_options or {}
    usage = {"usage": None} if options.get("include_usage") else {}

    head = as_json(shape.head(shape.chunk))[:-1]  # the same before every piece

    def line(*choices: dict[str, Any], **more: Any) -> str:
        rest = as_json({"choices": choices} | usage | more)
        return f"data: {head}, {rest[1:]}\n\n"

    async with served.use():
        try:
            for index in range(len(shape.ended)):
                if (first := shape.first(index)) is not None:
                    yield line(first)
            async for number, event in events(request, served, jobs, PING):
                if event is None:
                    yield ": ping\n\n"
                    continue
                index = shape.add(number, event)
                tokens, shape.tokens[index] = shape.tokens[index], []
                reason = None
                if isinstance(event, Ended):
                    reason = REASONS[event.generation.reason]
                if event.piece or tokens or reason:
                    yield line(shape.piece(index, event.piece, tokens, reason))
            if usage:
                yield line(usage=shape.usage())
            yield "data: [DONE]\n\n"
        except ClientGone:
            return
        except Exception as error:
            yield f"data: {json.dumps(error_body(as_request_error(error, state_of(request))))}\n\n"
