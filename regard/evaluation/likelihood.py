"""Computes the log-probability of a completion given a context: exactly, and in batches.

The boundary between context and completion is between tokens, not between characters: both are
encoded together, the context is also encoded alone, and the completion starts at the first token
that differs. A token that spans the boundary belongs to the completion. Encoding the two texts
separately would ask for tokens that the model never saw in this place. lm-evaluation-harness has
the same rule, but it counts the tokens of the context instead of comparing them, and it first moves
blanks from the end of a context to the completion: here they may stand on either side.

If there is no token before the completion, the end token of a previous text stands there, as in a
corpus. In a model with an encoder, the encoder reads the context, and the decoder scores the
completion with the end token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError
from regard.data.batching import TOKENS, by_tokens
from regard.decoding.decode_state import at_rest, reader_for, right_padded
from regard.decoding.prompts import Prompts, readable
from regard.formats.directory import Checkpoint
from regard.models.output import CHUNK

SHARED = 32  # contexts of at least 32 tokens are read once for several completions


@dataclass(frozen=True)
class Likelihood:
    """The log-probabilities of a completion. They are natural logarithms."""

    logprobs: tuple[float, ...]  # one for each token of the completion
    bytes: int  # the size of the completion's text, without the blanks around it

    @property
    def total(self) -> float:
        return sum(self.logprobs)

    @property
    def tokens(self) -> int:
        return len(self.logprobs)

    @property
    def per_token(self) -> float:
        return self.total / self.tokens

    @property
    def per_byte(self) -> float:
        return self.total / max(1, self.bytes)


class LikelihoodRequest(NamedTuple):
    """A request to score the tokens `after` given the tokens `before`."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """The tokens that a causal model reads. The last token is only predicted."""
        return self.before + self.after[:-1]


class TokenScores(NamedTuple):
    """The log-probabilities of the tokens of a request, and whether each is the likeliest one."""

    logprobs: tuple[float, ...]
    likeliest: tuple[bool, ...]

    @property
    def greedy(self) -> bool:
        """Whether greedy decoding would write these tokens."""
        return all(self.likeliest)


class ScoredPosition(NamedTuple):
    """The position in a batch at which a request is scored."""

    row: int
    column: int  # the column whose logits predict the first token of the completion
    ask: LikelihoodRequest


Read = tuple[Tensor, list[ScoredPosition]]  # hidden states [B, T, width], and where they are scored


def score(
    loaded: Checkpoint,
    contexts: Sequence[str],
    completions: Sequence[str],
    *,
    length: int | None = None,
    truncate: bool = False,
) -> list[Likelihood]:
    """Returns the likelihood of each completion given its context.

    >>> yes, no = score(loaded, ["Is it raining?"] * 2, [" Yes", " No"])

    A context that is too long for the model, or for `length` tokens, is refused; `truncate` leaves
    out its beginning instead. A context that several completions share is read once.
    """
    if len(contexts) != len(completions):
        raise InputError(
            f"there are {len(contexts):,} contexts and {len(completions):,} completions; give one "
            "context for each completion"
        )
    scorer = Scorer(loaded, length)
    asks = [scorer.ask(*pair) for pair in zip(contexts, completions, strict=True)]
    for i, ask in enumerate(asks):
        if not scorer.fits(ask):
            if not truncate:
                raise InputError(
                    f"context and completion {i + 1:,} have {scorer.size(ask):,} tokens, and this "
                    f"model reads {scorer.limit:,} at once; shorten it, or let its beginning be "
                    "cut off (truncate)"
                )
            asks[i] = scorer.cut([ask])[0]
    logprobs_of = scorer.run(asks)
    return [
        Likelihood(logprobs, size(text))
        for logprobs, text in zip(logprobs_of, completions, strict=True)
    ]


def size(completion: str) -> int:
    return len(completion.strip().encode())


class Scorer:
    """Computes likelihoods with one model."""

    def __init__(self, loaded: Checkpoint, length: int | None = None) -> None:
        self.model = loaded.model
        reader_for(self.model)  # refuses a model that cannot continue a text
        self.prompts = Prompts(loaded)
        self.words = self.prompts.words()
        context = getattr(self.model.config, "context", None)
        limits = [limit for limit in (context, length) if limit is not None]
        self.limit: int | None = min(limits, default=None)
        if length is not None and length < 2:
            raise ConfigError(
                f"length is {length}; a context and a completion need at least 2 tokens"
            )
        self.asked = self.model.unlimited()

    # -- from texts to tokens

    def ask(self, context: str, completion: str) -> LikelihoodRequest:
        return self.asks(context, [completion])[0]

    def asks(self, context: str, completions: Sequence[str]) -> list[LikelihoodRequest]:
        """Returns one request for each completion of a context."""
        before = self.words.encode(readable(context), special=self.prompts.pair)
        make = self.sourced if self.prompts.pair else self.continuing
        for completion in completions:
            if not completion.strip():
                raise InputError(f"a completion is {completion!r}; it must hold a visible letter")
        return [make(context, before, readable(completion)) for completion in completions]

    def sourced(self, context: str, source: list[int], completion: str) -> LikelihoodRequest:
        end = self.model.config.eos_id
        target = self.words.encode(completion.strip(), special=False)
        return LikelihoodRequest((*source, *[end][: source[-1:] != [end]]), (*target, end))

    def continuing(self, context: str, alone: list[int], completion: str) -> LikelihoodRequest:
        both = self.words.encode(context + completion, special=False)
        same = next(
            (i for i, pair in enumerate(zip(alone, both, strict=False)) if pair[0] != pair[1]),
            min(len(alone), len(both)),
        )
        if same == len(both):
            raise InputError(
                f"the completion {completion!r} adds no token to its context {context[-40:]!r}; "
                "this tokenizer does not see it"
            )
        if same:
            return LikelihoodRequest(tuple(both[:same]), tuple(both[same:]))
        start = self.prompts.start()
        if start is None:
            raise InputError(
                f"the context of {completion!r} is empty, and this model has no token that begins "
                "a text; give a context"
            )
        return LikelihoodRequest((start,), tuple(both))

    def size(self, ask: LikelihoodRequest) -> int:
        """Returns the number of tokens that the limit is about: a source, or all that is read."""
        return len(ask.before) if self.prompts.pair else len(ask.rows)

    def fits(self, ask: LikelihoodRequest) -> bool:
        return self.limit is None or self.size(ask) <= self.limit

    def cut(self, asks: Sequence[LikelihoodRequest]) -> list[LikelihoodRequest]:
        """Cuts the beginning of the contexts if one is too long, by the same amount for all of
        them.

        To compare completions, the model must have read the same context before each.
        """
        if self.limit is None or all(map(self.fits, asks)):
            return list(asks)
        longest = max(len(ask.after) for ask in asks)
        room = self.limit if self.prompts.pair else self.limit - longest + 1
        if room < 1:
            raise InputError(
                f"a completion of {longest:,} tokens leaves no room for its context in the "
                f"{self.limit:,} that can be read at once"
            )
        return [LikelihoodRequest(ask.before[-room:], ask.after) for ask in asks]

    # -- from tokens to likelihoods

    def run(self, asks: Sequence[LikelihoodRequest]) -> list[tuple[float, ...]]:
        """Returns the log-probabilities of the tokens of each request. Equal requests are read
        once.

        No result depends on the other requests, except for rounding.
        """
        return [scores.logprobs for scores in self.scores(asks)]

    def scores(self, asks: Sequence[LikelihoodRequest]) -> list[TokenScores]:
        """Returns what `run` does, and which tokens are the likeliest of the vocabulary."""
        scores: dict[LikelihoodRequest, TokenScores] = {}
        with at_rest(self.model), torch.inference_mode():
            for hidden, places in self.read(list(dict.fromkeys(asks))):
                scores |= token_scores(self.asked, hidden, places)
        return [scores[ask] for ask in asks]

    def read(self, asks: list[LikelihoodRequest]) -> Iterator[Read]:
        if self.prompts.pair:
            yield from self.decoded(asks)
        elif self.model.decoding == "queries":
            yield from self.permuted(asks)
        else:
            apart, together = self.group_by_context(asks)
            yield from self.whole_rows(apart)
            yield from self.shared_contexts(together)

    def group_by_context(
        self, asks: list[LikelihoodRequest]
    ) -> tuple[list[LikelihoodRequest], list[list[LikelihoodRequest]]]:
        """Returns the requests with their own rows, and the groups that share a context worth
        caching.

        A Transformer-XL reads a text that is longer than its memory in pieces, which are always the
        same; a piece ends at the end of the context.
        """
        memory = getattr(self.model.config, "mem_len", 0)
        remembers = self.model.decoding in ("kv_cache", "recurrent")
        groups: dict[tuple[int, ...], list[LikelihoodRequest]] = defaultdict(list)
        for ask in asks:
            groups[ask.before].append(ask)
        apart: list[LikelihoodRequest] = []
        together: list[list[LikelihoodRequest]] = []
        for before, group in groups.items():
            several = len({ask.rows for ask in group if len(ask.after) > 1}) > 1
            long = memory > 0 and any(len(ask.rows) > memory for ask in group)
            if remembers and (long or (several and len(before) >= SHARED)):
                together.append(group)
            else:
                apart += group
        return apart, together

    def whole_rows(self, asks: list[LikelihoodRequest]) -> Iterator[Read]:
        """Yields rows of context and completion. A prefix of another row is not read again."""
        rows: list[tuple[int, ...]] = []
        asks_of: list[list[LikelihoodRequest]] = []
        for ask in sorted(asks, key=lambda ask: ask.rows, reverse=True):  # prefixes come later
            if not rows or rows[-1][: len(ask.rows)] != ask.rows:
                rows.append(ask.rows)
                asks_of.append([])
            asks_of[-1].append(ask)
        for batch in by_tokens(np.array([len(row) for row in rows])) if rows else ():
            tokens, _ = right_padded([rows[i] for i in batch], self.model.device)
            hidden = self.model(tokens)  # padding is on the right of all scored tokens
            yield (
                hidden,
                [
                    ScoredPosition(row, len(ask.before) - 1, ask)
                    for row, i in enumerate(batch)
                    for ask in asks_of[i]
                ],
            )

    def shared_contexts(self, groups: list[list[LikelihoodRequest]]) -> Iterator[Read]:
        """Reads contexts of one length together, each once, and then all their completions."""
        by_size: dict[int, list[list[LikelihoodRequest]]] = defaultdict(list)
        for group in groups:
            longest = len(group[0].before) + max(len(ask.after) for ask in group)
            most = max(1, TOKENS // longest)  # each completion has a copy of the cache
            for start in range(0, len(group), most):
                by_size[len(group[0].before)].append(group[start : start + most])
        for same in by_size.values():
            sizes = [sum(len(ask.rows) for ask in group) for group in same]
            for batch in by_tokens(np.array(sizes)):
                yield self.continued([same[i] for i in batch])

    def continued(self, groups: list[list[LikelihoodRequest]]) -> Read:
        contexts = torch.tensor([group[0].before for group in groups], device=self.model.device)
        follow = [ask.after[:-1] for group in groups for ask in group]
        longest = max(len(row) for row in follow)
        state = self.model.start(len(groups), contexts.size(1) + longest)
        step = getattr(self.model.config, "mem_len", 0) or contexts.size(1)
        for piece in contexts.split(step, 1):
            hidden = self.model(piece, state=state)
        owners = [i for i, group in enumerate(groups) for _ in group]
        owner = torch.tensor(owners, device=self.model.device)
        rows = hidden[owner, -1:]
        if longest:
            state.reorder(owner)
            block, _ = right_padded(follow, self.model.device)
            rows = torch.cat([rows, self.model(block, state=state)], 1)
        return rows, in_order([ask for group in groups for ask in group])

    def permuted(self, asks: list[LikelihoodRequest]) -> Iterator[Read]:
        """Scores with XLNet: the tokens of a context see each other; each target row predicts one
        token and sees all tokens before it."""
        for batch in by_tokens(np.array([len(a.before) + 2 * len(a.after) for a in asks])):
            part = [asks[i] for i in batch]
            tokens, _ = right_padded([ask.before + ask.after for ask in part], self.model.device)
            place = torch.arange(tokens.size(1), device=tokens.device)
            starts = torch.tensor([len(ask.before) for ask in part], device=tokens.device)
            order = (place - starts[:, None]).clamp_min(-1)
            most = torch.arange(max(len(ask.after) for ask in part), device=tokens.device)
            targets = (starts[:, None] + most).clamp_max(tokens.size(1) - 1)
            hidden = self.asked(tokens, order=order, targets=targets)
            yield hidden, in_order(part)

    def decoded(self, asks: list[LikelihoodRequest]) -> Iterator[Read]:
        """Scores with an encoder and a decoder. The encoder reads each source only once."""
        model = self.model
        for batch in by_tokens(np.array([len(ask.before) + len(ask.after) for ask in asks])):
            part = [asks[i] for i in batch]
            sources = list(dict.fromkeys(ask.before for ask in part))
            source, attention_mask = right_padded(sources, model.device)
            at = {row: i for i, row in enumerate(sources)}
            owner = torch.tensor([at[ask.before] for ask in part], device=model.device)
            fixed = [
                x.reorder(owner) for x in model.project_source(model.encode(source, attention_mask))
            ]
            target, _ = right_padded([(model.config.start_id, *a.after[:-1]) for a in part],
                                     model.device)  # fmt: skip
            hidden = model.decode(
                target, fixed, None if attention_mask is None else attention_mask[owner]
            )
            yield hidden, in_order(part)


def in_order(asks: list[LikelihoodRequest]) -> list[ScoredPosition]:
    """Returns one position per request, for rows that hold the completion alone."""
    return [ScoredPosition(row, 0, ask) for row, ask in enumerate(asks)]


def token_scores(
    model: Any, hidden: Tensor, places: list[ScoredPosition]
) -> dict[LikelihoodRequest, TokenScores]:
    """Returns the scores. Logits are computed once, and only at requested positions."""
    width = hidden.size(1)
    rows = [row * width + column + i for row, column, ask in places for i in range(len(ask.after))]
    targets = torch.tensor([t for _, _, ask in places for t in ask.after], device=hidden.device)
    distinct, which = torch.unique(torch.tensor(rows, device=hidden.device), return_inverse=True)
    flat = hidden.flatten(0, 1)
    exact = torch.promote_types(hidden.dtype, torch.float32)
    values = torch.empty(len(rows), dtype=exact, device=hidden.device)
    likeliest = torch.empty(len(rows), dtype=torch.bool, device=hidden.device)
    chunk = max(1, CHUNK // model.config.vocab_size)
    for start in range(0, distinct.numel(), chunk):
        log_p = model.logits(flat[distinct[start : start + chunk]]).to(exact).log_softmax(-1)
        inside = ((which >= start) & (which < start + chunk)).nonzero()[:, 0]
        wanted = which[inside] - start
        values[inside] = log_p[wanted, targets[inside]]
        likeliest[inside] = log_p.argmax(-1)[wanted] == targets[inside]
    logprobs, best = iter(values.tolist()), iter(likeliest.tolist())
    return {
        ask: TokenScores(
            tuple(next(logprobs) for _ in ask.after), tuple(next(best) for _ in ask.after)
        )
        for _, _, ask in places
    }
