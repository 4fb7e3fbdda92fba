"""Speculative decoding (Leviathan et al. 2023; Chen et al. 2023): the same texts in fewer steps.

A draft guesses the next tokens, and the model reads them all in one call. For a row of weights that
is read from memory once, a few tokens cost little more than one. The model's own choice decides:

    greedy    a guess stays if it is the likeliest token, so the texts are equal token by token
    sampling  a guess x stays with probability min(1, p(x) / q(x)); otherwise a token is drawn from
              max(0, p - q), normalized. So each token is drawn from p, the model's distribution
              after all processors, whatever the draft's distribution q is.

The draft is a smaller model with the same tokens, or the text itself ("lookup"): what followed the
last words the last time. Texts with a draft are generated one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.core.seeding import keyed
from regard.decoding.decode_state import LearnedPositionsState, at_rest, reader_for
from regard.decoding.processors import DecodedSoFar, Processor
from regard.decoding.sampling import (
    DecodingLoop,
    SampledToken,
    Sampler,
    StepScores,
    forbidden,
    greedy,
    likeliest,
)  # fmt: skip
from regard.formats.directory import load

if TYPE_CHECKING:
    from regard.decoding.generation import Decoder

LOOKUP = "lookup"
FIRST, MOST = 4, 16  # the guesses of the first round, and the most of a round
GRAM = 3  # the longest run of tokens that lookup searches for
Dice = Callable[[int], list[float]]  # uniform numbers of a step: to accept, to draw, to guess


class Guesses(NamedTuple):
    """Guessed tokens, and the distribution [V] that each was drawn from; None: it was certain."""

    tokens: list[int]
    shares: list[Tensor | None]


NONE = Guesses([], [])


class LookupDraft:
    """Guesses that the text repeats itself."""

    def guess(self, text: list[int], count: int, step: int) -> Guesses:
        """Returns what followed the last tokens of the text when they stood there before."""
        for size in range(min(GRAM, len(text) - 1), 0, -1):
            gram = text[-size:]
            for at in range(len(text) - size - 1, -1, -1):
                if text[at : at + size] == gram:
                    tokens = text[at + size : at + size + count]
                    return Guesses(tokens, [None] * len(tokens))
        return NONE


class ModelDraft:
    """Guesses by a smaller model, which has read the text but for its newest tokens."""

    def __init__(
        self, model: Any, prompt: list[int], most: int, process: Processor | None, dice: Dice | None
    ) -> None:
        self.process, self.dice = process, dice
        self.state: Any = reader_for(model)
        self.fits = len(prompt) <= model.config.context
        if self.fits:
            self.state.begin([prompt], most)

    def guess(self, text: list[int], count: int, step: int) -> Guesses:
        state = self.state
        known = state.tokens[0, : state.length].tolist() if self.fits else []
        while known != text[: len(known)]:
            known.pop()
        unread = text[len(known) :]
        count = min(count, state.room - len(unread) - 1) if self.fits else 0
        if count < 1:
            self.fits = False
            return NONE
        state.forget(state.length - len(known))
        tokens: list[int] = []
        shares: list[Tensor | None] = []
        for i in range(count):
            following = unread if i == 0 else tokens[-1:]
            logits = state.read_ahead(torch.tensor(following))[-1:]
            scores = logits if self.process is None else self.process(logits, state.past())
            if self.dice is None:
                tokens.append(int(scores.argmax(-1)))
                shares.append(None)
            else:
                share = scores[0].double().softmax(-1)
                tokens.append(drawn_from(share, self.dice(step + i)[2]))
                shares.append(share)
        return Guesses(tokens, shares)


def dice_of(seed: int, number: int, sample: int) -> Dice:
    def numbers(step: int) -> list[float]:
        uniform: list[float] = keyed(seed, "speculative", number, sample, step).random(3).tolist()
        return uniform

    return numbers


def drawn_from(share: Tensor, at: float) -> int:
    """Returns the token that a uniform number draws from a distribution [V], which need not be
    normalized."""
    reached = share.cumsum(-1)
    total = reached[-1:]
    point = torch.minimum(at * total, total.nextafter(total * 0))
    return int(torch.searchsorted(reached, point, right=True))


class SpeculativeLoop(DecodingLoop):
    """Continues one text by rounds of guessing and checking."""

    reader: LearnedPositionsState

    def __init__(
        self, *parts: Any, draft: LookupDraft | ModelDraft, dice: Dice | None, **more: Any
    ) -> None:
        super().__init__(*parts, **more)
        self.draft, self.dice, self.count = draft, dice, FIRST
        self.rounds = 0  # calls of the model

    @torch.inference_mode()
    def steps(self) -> Iterator[list[SampledToken]]:
        drawn, tokens = self.draw()
        while True:
            yield drawn
            if self.done:
                return
            self.rounds += 1
            guesses = self.guesses(int(tokens[0]))
            if not guesses.tokens:
                self.scores = StepScores.of(self.reader.read(tokens))
                drawn, tokens = self.draw()
                continue
            start = self.reader.length
            chain = [int(tokens[0]), *guesses.tokens]
            scores = StepScores.of(self.reader.read_ahead(torch.tensor(chain)))
            for i in range(len(chain)):
                row = scores.rows([i])
                token, stays = self.judge(row.logits, start + i + 1, guesses, i)
                drawn = [self.sampled(row, token)]
                if not stays or self.done:
                    break
                yield drawn
                if self.done:
                    return
            self.reader.forget(len(chain) - 1 - i)
            tokens = torch.tensor([token])
            all_stay = i == len(guesses.tokens)
            self.count = min(self.count + 2, MOST) if all_stay else max(self.count - 1, 1)

    def guesses(self, newest: int) -> Guesses:
        """Returns guesses for the tokens after `newest`, as many as there is room and need for."""
        reader = self.reader
        count = min(self.count, reader.room - 1, self.limit - self.step - 1)
        if count < 1:
            return NONE
        text = [*reader.tokens[0, : reader.length].tolist(), newest]
        return self.draft.guess(text, count, self.step)

    def judge(self, logits: Tensor, length: int, guesses: Guesses, i: int) -> tuple[int, bool]:
        """Returns the token after the first `length` ones, and whether it is the guessed one."""
        scores = logits
        if self.process is not None:
            reader = self.reader
            past = DecodedSoFar(reader.tokens[:, :length], None, length - reader.prompt)
            scores = self.process(logits, past)
            if bool(scores.amax(-1).isneginf().any()):
                raise forbidden()
        guess = guesses.tokens[i] if i < len(guesses.tokens) else None
        if self.dice is None:
            token = int(scores.argmax(-1))
            return token, token == guess
        share = scores[0].double().softmax(-1)
        accept, draw, _ = self.dice(self.step)
        if guess is None:
            return drawn_from(share, draw), False
        among = guesses.shares[i]
        chance = 1.0 if among is None else float(among[guess])
        if accept * chance < float(share[guess]):
            return guess, True
        rest = share.clone() if among is None else (share - among).clamp_min(0)
        rest[guess] = 0.0
        return drawn_from(rest, draw), False

    def sampled(self, row: StepScores, token: int) -> SampledToken:
        """Counts a token, and ends the text if it is an end token."""
        self.step += 1
        logprobs = row.logits[0] - row.total[0]
        best = likeliest(logprobs[None], self.top_logprobs)[0] if self.top_logprobs else []
        if token in self.ends:
            self.close(0)
        return SampledToken(0, token, float(logprobs[token]), best)


class Draft:
    """What a decoder guesses with: a model, or the text itself."""

    def __init__(self, model: Any) -> None:
        self.model = model  # None: lookup

    def loop(
        self, decoder: Decoder, prompt: list[int], number: int, most: int, least: int,
        sample: int = 0,
    ) -> SpeculativeLoop:  # fmt: skip
        """Reads a prompt and returns the loop that continues it."""
        options, process = decoder.options, decoder.process(most, least)
        dice: Dice | None = None
        if options.draws:
            dice = dice_of(options.seed, number, sample)
        with torch.inference_mode():
            reader = decoder.reader()
            logits = reader.begin([prompt], most)
            if self.model is None:
                draft: LookupDraft | ModelDraft = LookupDraft()
            else:
                with at_rest(self.model):
                    draft = ModelDraft(self.model, prompt, most, process, dice)
        pick: Any = Sampler(options.seed, [(number, sample)]) if options.draws else greedy
        return SpeculativeLoop(
            reader, logits, pick=pick, process=process, ends=decoder.ends, limit=most,
            top_logprobs=options.top_logprobs, draft=draft, dice=dice,
        )  # fmt: skip


def draft_for(model: Any, name: str) -> Draft:
    """Returns the draft of an option for a model that can take back what it has read."""
    if model.decoding != "kv_cache" or "pointer" in model.extensions:
        raise ConfigError(
            f"draft is {name!r}, and this {type(model).__name__} cannot take back tokens that it "
            "has read; leave draft out, or use a gpt or llama"
        )
    if name == LOOKUP:
        return Draft(None)
    other: Any = load(name).model.eval()
    if other.decoding != "kv_cache" or other.config.vocab_size != model.config.vocab_size:
        raise ConfigError(
            f"draft: {name} is a {type(other).__name__} of {other.config.vocab_size:,} tokens, and "
            f"the model has {model.config.vocab_size:,}; give a gpt or llama with the same "
            f"tokenizer, or '{LOOKUP}'"
        )
    return Draft(other)
