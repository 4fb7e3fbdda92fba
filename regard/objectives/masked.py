"""Masked language modeling (Devlin et al. 2018, 3.1; Liu et al. 2019 for new masks in every epoch
and for text without pairs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.core.seeding import keyed
from regard.data.corpus import ROLES, Corpus
from regard.data.words import WordStarts
from regard.models.output import CHUNK, Output
from regard.models.state import State
from regard.objectives.base import Batch, Loss, Objective, Sample, perplexity
from regard.objectives.causal import choose, padding, ring, shifted
from regard.objectives.reading import inner, refuse, takes

HIDE, KEEP = 0.8, 0.1  # shares of the chosen tokens; the rest become random vocabulary entries
COUNTED = 2**22  # tokens that are counted at a time


@dataclass(frozen=True)
class MaskedOptions:
    share: float = 0.15  # the share of masked tokens, [CLS] and [SEP] counted
    most: int | None = None  # the most targets of a sample; None: the share of its length
    rare: float = 0.0  # tokens are chosen with weight count^-rare; DistilBERT's authors use 0.7
    whole_words: str = "no"  # "pieces": all pieces of a word together; "chinese": jieba's words
    dynamic: bool = True  # new masks in every epoch; False: `duplicates` masks take turns
    duplicates: int = 10
    documents: str = "packed"  # texts cross documents; "separate": a text has one document
    shift: bool = True  # packed: new masks come with other text boundaries
    global_first: bool = True  # a Longformer's [CLS] is global (its authors pre-train without)


class Mask:
    """Chooses the tokens to mask: exactly min(most, max(1, round(share · length))) of them.

    Every token except special tokens may be chosen; an unknown word counts as a word. All tokens
    are equally likely, unless rare ones are preferred.
    """

    def __init__(self, corpus: Corpus, options: Any, length: int) -> None:
        if not 0 < options.share <= 1:
            raise ConfigError(f"share is {options.share}; it must be above 0 and at most 1")
        for name in ("most", "duplicates"):
            value = getattr(options, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        choose("whole_words", options.whole_words, ("no", "pieces", "chinese"))
        if not 0 <= options.rare <= 4 or (options.rare and options.whole_words != "no"):
            raise ConfigError(
                f"rare is {options.rare:g} and whole_words is {options.whole_words!r}; rare must "
                "be from 0 to 4, such as 0.7, and needs whole_words 'no'"
            )
        special = corpus.special
        self.share, self.vocab_size = options.share, corpus.vocab_size
        self.mask = special.need("mask")
        self.most = options.most or max(1, round(length * options.share))
        self.barred = np.zeros(corpus.vocab_size, np.bool_)
        for role in ROLES:
            if role != "unknown" and getattr(special, role) is not None:
                self.barred[getattr(special, role)] = True
        self.barred[special.sentinels] = True
        self.likely = rarity(corpus, options.rare) if options.rare else None  # of each entry
        self.words: WordStarts | None = None
        if options.whole_words != "no":
            chinese = options.whole_words == "chinese"
            self.words = WordStarts(corpus.tokenizer, corpus.vocab_size, chinese=chinese)

    def __call__(self, tokens: np.ndarray, draw: np.random.Generator) -> Sample:
        """Changes `tokens` in place; returns the `targets` (their positions), the `wanted` tokens
        there and their `shares`, with zeros after the last target."""
        free = np.flatnonzero(~self.barred[tokens])
        goal = min(self.most, max(1, round(len(tokens) * self.share)))
        if self.likely is not None and len(free):
            weights = self.likely[tokens[free]]
            count = min(goal, len(free))
            chosen = draw.choice(free, count, replace=False, p=weights / weights.sum())
        elif self.words is None:
            chosen = draw.permutation(free)[:goal]
        else:
            chosen = self.whole(tokens, free, goal, draw)
        chosen.sort()
        wanted = tokens[chosen]
        fate = draw.random(len(chosen))
        other = draw.integers(self.vocab_size, size=len(chosen))
        shown = np.where(fate < HIDE + KEEP, wanted, other)
        tokens[chosen] = np.where(fate < HIDE, self.mask, shown)
        return {
            "targets": filled(chosen, self.most),
            "wanted": filled(wanted, self.most),
            "shares": filled(np.ones(len(chosen), np.float32), self.most),
        }

    def whole(
        self, tokens: np.ndarray, free: np.ndarray, goal: int, draw: np.random.Generator
    ) -> np.ndarray:
        """Chooses whole words in random order; a word that would exceed the goal is skipped.

        A word never crosses a special token, as it can in the authors' code.
        """
        assert self.words is not None
        begins = self.words.begins(tokens)[free]
        begins[:1] = True
        begins[1:] |= np.diff(free) > 1
        first = np.flatnonzero(begins)
        sizes = np.diff([*first.tolist(), len(free)]).tolist()
        chosen: list[int] = []
        for word in draw.permutation(len(first)).tolist():
            if len(chosen) + sizes[word] <= goal:
                chosen.extend(range(first[word], first[word] + sizes[word]))
                if len(chosen) == goal:
                    break
        return np.asarray(free[chosen])


def rarity(corpus: Corpus, power: float) -> np.ndarray:
    """Returns count^-power of every entry; entries that do not occur count as 1."""
    counts = np.zeros(corpus.vocab_size, np.int64)
    for start in range(0, len(corpus), COUNTED):
        part = corpus.read(start, min(start + COUNTED, len(corpus)))
        counts += np.bincount(part, minlength=corpus.vocab_size)
    return np.asarray(np.maximum(counts, 1) ** -power)


def filled(values: np.ndarray, size: int) -> np.ndarray:
    """Appends zeros to the values, up to the size."""
    y = np.zeros(size, values.dtype)
    y[: len(values)] = values
    return y


class Masked(Objective):
    """[CLS] text [SEP]; the masked tokens are the targets."""

    Options: ClassVar[type] = MaskedOptions
    name = "masked"
    comparable = True
    pipeline_tag = "fill-mask"
    continues = False
    fills_blanks = True

    def prepare(self) -> None:
        choose("documents", self.options.documents, ("packed", "separate"))
        self.packed, self.span = self.options.documents == "packed", self.seq_len - 2
        if self.span < 1:
            raise ConfigError(
                f"batch.seq_len {self.seq_len} leaves no room for text; give at least 3"
            )
        self.cls, self.sep = (self.corpus.special.need(role) for role in ("cls", "sep"))
        self.mask = Mask(self.corpus, self.options, self.seq_len)
        self.ends = np.empty(0, np.int64)  # the number of samples up to each document's end
        if not self.packed:
            texts = np.maximum(1, np.diff(self.corpus.documents) - 1)  # without the end token
            self.ends = np.cumsum(-(-texts // self.span))

    def __len__(self) -> int:
        if not self.packed:
            return int(self.ends[-1]) if len(self.ends) else 0
        tokens = len(self.corpus)
        return -(-tokens // self.span) if tokens >= self.span else 0

    def version(self, epoch: int) -> int:
        """Returns the number of the masks that an epoch uses."""
        if not self.learning:
            return 0
        return epoch if self.options.dynamic else epoch % self.options.duplicates

    def sample(self, epoch: int, index: int) -> Sample:
        version = self.version(epoch)
        tokens = np.concatenate([[self.cls], self.text(version, index), [self.sep]])
        hidden = self.mask(tokens, keyed(self.seed, "mask", version, index))
        return {"tokens": tokens, **hidden} if self.packed else {**self.padded(tokens), **hidden}

    def padded(self, tokens: np.ndarray) -> Sample:
        size = len(tokens)
        tokens = np.concatenate([tokens, np.full(self.seq_len - size, padding(self.corpus))])
        return {"tokens": tokens, "attention_mask": np.arange(self.seq_len) < size}

    def text(self, version: int, index: int) -> np.ndarray:
        """Returns a sample's text; the last packed one continues at the split's beginning."""
        if self.packed:
            size, moving = len(self.corpus), self.learning and self.options.shift
            start = shifted(self.seed, version, self.span, size) if moving else 0
            start += index * self.span
            return ring(self.corpus, start, start + self.span)
        document = int(np.searchsorted(self.ends, index, "right"))
        before = int(self.ends[document - 1]) if document else 0
        first, last = (int(edge) for edge in self.corpus.documents[document : document + 2])
        start = first + (index - before) * self.span
        return self.corpus.read(start, min(start + self.span, max(first + 1, last - 1)))

    @property
    def word_loss(self) -> str:
        return "masked"

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"masked": float(batch["shares"].sum())}

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        hidden = self.read(model, batch)
        return guesses("masked", model, rows_at(hidden, batch["targets"]), batch)

    def read(self, model: Any, batch: Batch) -> Tensor:
        tokens, extra = batch["tokens"], {}
        if self.options.global_first and takes(model, "global_tokens"):
            extra["global_tokens"] = tokens.new_zeros(tokens.size(0), 1)
        hidden: Tensor = model(tokens, batch.get("attention_mask"), batch.get("segments"), **extra)
        return hidden

    def heads(self) -> dict[str, int]:
        return {"masked": 0}

    def check(self, model: Any) -> None:
        check_reads_both_sides(model, self.seq_len)

    def measure(self, totals: Loss) -> dict[str, float]:
        return guess_measures("masked", totals)

    def better(self, new: float, old: float) -> bool:
        return new > old


def check_reads_both_sides(model: Any, length: int) -> None:
    """Refuses a model that is not an encoder with a masked-word head: its rows must see both sides
    and have their own word as input."""
    if model.fills != "masked":
        wanted = "to predict hidden words from both sides"
        raise refuse(model, wanted, lambda kind: kind.fills == "masked")
    if not hasattr(model, "output"):
        raise ConfigError('the model has no head "masked"; build it with heads={"masked": 0}')
    if length > model.config.context:
        raise ConfigError(
            f"batch.seq_len is {length}, but this model has learned {model.config.context} "
            "positions; choose a smaller length, or a model with a longer context"
        )


def rows_at(hidden: Tensor, places: Tensor) -> Tensor:
    """Selects rows: hidden [B, T, d] at places [B, R] -> [B, R, d]."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.size(2)))


def guesses(name: str, model: Any, rows: Tensor, batch: Batch) -> Loss:
    """Returns the loss of the rows [B, R, d] that predict the wanted words; in evaluation mode also
    how many predictions are right."""
    rows, shares = rows.flatten(0, 1), batch["shares"].flatten()
    wanted = batch["wanted"].flatten()
    count: Any = shares.sum()
    if not torch.compiler.is_compiling():  # a Python number would break the graph
        count = float(count)
    loss = Loss({name: model.output.surprisal(rows, wanted, shares)}, {name: count})
    if not model.training:
        loss.seen[f"{name}_right"] = right(inner(model).output, rows, wanted, shares), count
    return loss


@torch.no_grad()
def right(output: Output, rows: Tensor, wanted: Tensor, shares: Tensor) -> Tensor:
    """Returns how many wanted words are the most likely ones, computed in chunks of logits."""
    size = max(1, CHUNK // output.weight.size(0))
    parts = zip(rows.split(size), wanted.split(size), shares.split(size), strict=True)
    return torch.stack([((output(r).argmax(-1) == w) * s).sum() for r, w, s in parts]).sum()


def guess_measures(name: str, totals: Loss) -> dict[str, float]:
    hits, of = totals.seen[f"{name}_right"]
    nats, count = totals.sums.get(name, 0.0), totals.counts.get(name, 0.0)
    return {
        f"{name}_accuracy": float(hits) / max(of, 1.0),
        f"{name}_perplexity": perplexity(float(nats), count),
    }
