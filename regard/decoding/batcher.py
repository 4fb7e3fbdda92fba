"""Continuous batching: prompts join and leave between any two tokens, each with its own options.

    batcher = Batcher(model, most=32)
    batcher.join([Continuation(decoder, prompt), Continuation(other_decoder, other_prompt)])
    while batcher.running:
        batcher.step()  # one token for every text

What a continuation writes depends on nothing but its own prompt, number and options: it is what
`generate` returns. A beam search takes a row for each beam, and `num_samples` one for each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import Beams
from regard.decoding.decode_state import DecodeState
from regard.decoding.generation import Decoder, Generation, SampledTexts
from regard.decoding.joined import table_for
from regard.decoding.sampling import DecodingLoop, StepScores

PREFILL = 2048  # the most tokens of prompts, with their padding, that are read in one call


@dataclass(frozen=True)
class NewToken:
    """A token of one of the texts of a prompt, and the text that it makes certain."""

    index: int  # of the text: a prompt may have several samples
    token: int
    logprob: float
    piece: str
    alternatives: tuple[tuple[int, float], ...] = ()  # the likeliest tokens, if they are recorded


@dataclass(frozen=True)
class Ended:
    """The end of one of the texts of a prompt. `piece` is the text that was still uncertain."""

    index: int
    piece: str
    generation: Generation


@dataclass(eq=False)
class Continuation:
    """One prompt that is continued. Its `events` are what happened since they were last taken."""

    decoder: Decoder
    prompt: list[int]
    number: int = 0  # draws depend on it: the number of the prompt in a call of `generate`
    streams: bool = False  # whether pieces of text are wanted as soon as they are certain
    events: list[NewToken | Ended] = field(default_factory=list)
    error: Exception | None = None
    scores: StepScores | None = None  # of the next token

    def __post_init__(self) -> None:
        options = self.decoder.options
        self.rows = max(options.num_samples, options.num_beams)
        self.most, self.least = self.decoder.limits(self.prompt)
        self.reader: DecodeState | None = None
        self.beams: Beams | None = None
        self.loop: DecodingLoop | None = None
        self.over: set[int] = set()

    def begin(self, reader: DecodeState, logits: Tensor) -> None:
        self.reader, self.scores = reader, StepScores.of(logits)
        if self.decoder.options.num_beams > 1:
            self.beams = self.decoder.beams_after(reader, [self.prompt], self.most, self.least)
            self.beams.begin(logits)
        else:
            self.loop = self.decoder.loop_after(
                reader, logits, [self.number], self.most, self.least
            )
            prompts = [self.prompt] * self.rows
            self.texts = SampledTexts(self.decoder, self.loop, prompts, self.streams)

    def advance(self) -> Tensor | None:
        """Chooses the next tokens and returns those to read; None if all texts have ended."""
        assert self.scores is not None
        if self.beams is None:
            return self.sample()
        tokens = self.beams.advance(self.scores.logits)
        if tokens is None:
            for index, hypothesis in enumerate(self.beams.best()[0]):
                text = self.decoder.hypothesis(self.prompt, hypothesis)
                self.events.append(Ended(index, text.text or "", text))
        return tokens

    def sample(self) -> Tensor | None:
        loop = self.loop
        assert loop is not None and self.scores is not None
        if loop.step:
            loop.scores = self.scores
        drawn, tokens = loop.draw()
        for new, piece in zip(drawn, self.texts.add(drawn), strict=True):
            best = tuple(new.top_logprobs)
            self.events.append(NewToken(new.number, new.token, new.logprob, piece, best))
        done = loop.done
        for index in range(self.rows):
            if index not in self.over and (done or index not in loop.open):
                self.over.add(index)
                rest = self.texts.finish(index)
                self.events.append(Ended(index, rest, self.texts.generation(index)))
        return None if done else loop.going_on(tokens)


class Batcher:
    """The prompts that a model continues at the moment, in at most `most` rows."""

    def __init__(self, model: Any, most: int) -> None:
        self.table, self.most = table_for(model, most), most
        self.running: list[Continuation] = []
        self.chosen: list[tuple[Continuation, Tensor]] = []  # tokens that are not read yet

    def fitting(self, waiting: Sequence[Continuation]) -> list[Continuation]:
        """Returns the first of the waiting prompts that can be read now, in one call."""
        free = self.most - sum(each.rows for each in self.running)
        chosen: list[Continuation] = []
        for each in waiting:
            longest = max(len(one.prompt) for one in [*chosen, each])
            if each.rows > free or (chosen and longest * (len(chosen) + 1) > PREFILL):
                break
            if chosen and not (self.table.together and alike(chosen[0], each)):
                break
            chosen.append(each)
            free -= each.rows
        return chosen

    def join(self, chosen: Sequence[Continuation]) -> None:
        """Reads the prompts of `fitting`; their texts begin with the next step. A prompt whose
        texts cannot begin has its `error` and does not disturb the others."""
        first = chosen[0]
        prompts, rooms = [each.prompt for each in chosen], [each.most for each in chosen]
        begun = self.table.begin(first.decoder.reader(), prompts, rooms, first.rows)
        for each, (reader, logits) in zip(chosen, begun, strict=True):
            try:
                each.begin(reader, logits)
                self.running.append(each)
            except Exception as error:
                each.error = error
                self.table.release(reader)

    def step(self) -> list[Continuation]:
        """Chooses one token for every text and reads it. Returns the prompts that are done; one
        that fails has its `error` and does not disturb the others."""
        done = self.choose()
        self.read()
        return done

    @torch.inference_mode()
    def choose(self) -> list[Continuation]:
        """Chooses one token for every text: its events can be told while `read` computes."""
        done: list[Continuation] = []
        for each in self.running:
            try:
                tokens = each.advance()
            except Exception as error:
                each.error, tokens = error, None
            if tokens is None:
                done.append(each)
            else:
                self.chosen.append((each, tokens))
        for each in done:
            self.leave(each)
        return done

    @torch.inference_mode()
    def read(self) -> None:
        """Reads the tokens that were chosen."""
        pairs, self.chosen = self.chosen, []
        if not pairs:
            return
        read = self.table.read([(each.reader, tokens) for each, tokens in pairs])
        for (each, _), scores in zip(pairs, read, strict=True):
            each.scores = scores

    def leave(self, continuation: Continuation) -> None:
        """Removes a prompt whose texts have ended, or are no longer wanted."""
        self.running.remove(continuation)
        self.table.release(continuation.reader)


def alike(one: Continuation, other: Continuation) -> bool:
    """Returns whether two prompts can be read in one call."""
    prefixes = one.decoder.decoder_prefix(), other.decoder.decoder_prefix()
    return one.rows == other.rows and prefixes[0] == prefixes[1]
