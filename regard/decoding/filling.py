"""`fill`: masked language models predict blanks, T5 writes them.

A blank is written `[MASK]`, `___`, or as the tokenizer's own mask token; for T5 also
`<extra_id_0>`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import AddedToken
from tokenizers import Tokenizer as Fast
from torch import Tensor

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.special_tokens import SENTINEL
from regard.data.tokenizer import Tokenizer
from regard.data.words import kind
from regard.decoding.decode_state import at_rest, right_padded
from regard.decoding.generation import Decoder, Generation
from regard.decoding.options import DecodingOptions
from regard.decoding.prompts import Prompts, readable
from regard.formats.directory import Checkpoint
from regard.models import FAMILIES

ORDERS = ("confident", "left", "each")
BLANK = r"\[MASK\]|_{3,}"


@dataclass(frozen=True)
class FillCandidate:
    """A candidate for a blank. For T5 the probability is that of all its tokens together."""

    text: str
    ids: list[int]
    probability: float


@dataclass(frozen=True)
class FilledText:
    """The text with the best candidates, and the candidates of every blank, the best first."""

    text: str
    blanks: list[list[FillCandidate]]

    def _repr_html_(self) -> str:
        """In a notebook: the text, and the candidates of each blank with their probabilities."""
        from regard.report import notebook

        bars = [
            notebook.Bars([(each.text, each.probability) for each in blank], [blank[0].text])
            for blank in self.blanks
        ]
        return notebook.rendered("", notebook.Marked([(self.text, "")]), *bars)


def fill(
    loaded: Checkpoint,
    texts: str | Sequence[str],
    *,
    top_k: int = 5,
    order: str = "confident",
    max_new_tokens: int = 10,
    batch_size: int = 32,
) -> list[FilledText]:
    """Fills the blanks of one text or of several, and returns a list with one FilledText per text.

    Several blanks are filled one after the other, each with its best candidate before the next is
    predicted: the most `confident` prediction first, or from the `left`. With "each", every blank
    is predicted as if the others stayed blank. T5 writes all blanks in one text, each with up to
    `max_new_tokens`.
    """
    if order not in ORDERS:
        raise UnknownName("order", order, ORDERS)
    for name, value in (
        ("top_k", top_k),
        ("max_new_tokens", max_new_tokens),
        ("batch_size", batch_size),
    ):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    filler = filler_for(loaded, top_k, order, max_new_tokens)
    listed = [readable(text) for text in ([texts] if isinstance(texts, str) else texts)]
    results: list[FilledText] = []
    with torch.inference_mode(), at_rest(loaded.model):
        for at in range(0, len(listed), batch_size):
            results += filler.fill(listed[at : at + batch_size])
    return results


def filler_for(
    loaded: Checkpoint, top_k: int, order: str, max_new_tokens: int
) -> MaskedFiller | SpanFiller:
    model = loaded.model
    if model.fills == "sentinels":
        return SpanFiller(loaded, top_k, max_new_tokens)
    if model.fills and hasattr(model, "output"):
        return (QueryFiller if model.fills == "queries" else MaskedFiller)(loaded, top_k, order)
    if model.fills:
        heads = ", ".join(model.heads) or "none"
        does = f"it has no masked head (its heads: {heads})"
    else:
        does = "it continues texts ('regard generate') and cannot see the text after a blank"
    raise InputError(f"this model is a {type(model).__name__}: {does}; {fillers()}")


def fillers() -> str:
    able = [name for name, card in FAMILIES.items() if card.model.fills]
    return f"fill with one of {', '.join(able)} (encoders with their masked head)"


class MaskedFiller:
    """BERT and Longformer: a masked word is predicted from both sides."""

    def __init__(self, loaded: Checkpoint, top_k: int, order: str) -> None:
        self.model, self.top, self.order = loaded.model, top_k, order
        prompts = Prompts(loaded)
        self.words = prompts.words()
        special = prompts.special
        assert special is not None
        self.special, self.mask = special, special.need("mask")
        self.coder, self.blank = coder(self.words, self.mask)
        self.pieces = PieceTexts(self.words)
        self.white = self.pieces.white(self.model.config.vocab_size)

    def fill(self, texts: list[str]) -> list[FilledText]:
        rows = [self.encode(text) for text in texts]
        blanks = [[i for i, t in enumerate(row) if t == self.mask] for row in rows]
        candidates: list[dict[int, list[FillCandidate]]] = [{} for _ in rows]
        tokens, attention_mask = right_padded(rows, self.model.device, self.special.pad or 0)
        left = [list(places) for places in blanks]
        while any(left):
            wanted = [places[:1] if self.order == "left" else places for places in left]
            for i, guesses in enumerate(self.guess(tokens, attention_mask, wanted)):
                for place in self.chosen(guesses):
                    candidates[i][place] = guesses[place]
                    tokens[i, place] = guesses[place][0].ids[0]
                    left[i].remove(place)
        ordered = [
            [known[p] for p in places] for places, known in zip(blanks, candidates, strict=True)
        ]
        return [
            FilledText(self.filled(text, [blank[0].ids[0] for blank in each]), each)
            for text, each in zip(texts, ordered, strict=True)
        ]

    def filled(self, text: str, tokens: list[int]) -> str:
        """Returns the text itself, with what each token stands for in the place of its blank."""
        whole, at = "", 0
        for match, token in zip(self.blank.finditer(text), tokens, strict=True):
            whole += text[at : match.start()]
            piece, joins = self.pieces(token)
            whole = whole.rstrip(" ") if joins else whole
            whole, at = whole + (piece if whole else piece.lstrip(" ")), match.end()
        return whole + text[at:]

    def chosen(self, guesses: dict[int, list[FillCandidate]]) -> list[int]:
        """Returns which blanks are filled now."""
        if self.order == "each" or not guesses:
            return list(guesses)
        return [max(guesses, key=lambda place: guesses[place][0].probability)]

    def encode(self, text: str) -> list[int]:
        mask = self.words.tokens([self.mask])[0]
        ids: list[int] = self.coder.encode(self.blank.sub(lambda _: mask, text)).ids
        if self.mask not in ids:
            raise InputError(
                f"the text {shown(text)} has no blank; write one as [MASK], ___ or {mask}"
            )
        limit = getattr(self.model.config, "context", math.inf)
        ids = self.frame(ids)
        if len(ids) > limit:
            raise InputError(
                f"the text has {len(ids):,} tokens, and this model reads {limit:,} at once; "
                "shorten it around its blanks"
            )
        return ids

    def frame(self, ids: list[int]) -> list[int]:
        """Adds the special tokens of training around a text, if the tokenizer does not add them."""
        cls, sep = self.special.cls, self.special.sep
        return ids if cls in ids or cls is None or sep is None else [cls, *ids, sep]

    def guess(
        self, tokens: Tensor, attention_mask: Tensor | None, wanted: list[list[int]]
    ) -> list[dict[int, list[FillCandidate]]]:
        """Returns for each text the candidates of the wanted positions."""
        index = [(i, place) for i, places in enumerate(wanted) for place in places]
        best = self.best(self.rows(tokens, attention_mask, wanted))
        candidates: list[dict[int, list[FillCandidate]]] = [{} for _ in wanted]
        for (i, place), values, ids in zip(
            index, best.values.tolist(), best.indices.tolist(), strict=True
        ):
            candidates[i][place] = [
                FillCandidate(self.say(token), [token], value)
                for token, value in zip(ids, values, strict=True)
            ]
        return candidates

    def best(self, hidden: Tensor) -> torch.return_types.topk:
        """Returns the likeliest tokens and their probabilities; white space fills no blank."""
        p = self.model.logits(hidden).float().softmax(-1)
        p[:, self.white] = -1.0
        return p.topk(min(self.top, p.size(-1) - len(self.white)))

    def rows(
        self, tokens: Tensor, attention_mask: Tensor | None, wanted: list[list[int]]
    ) -> Tensor:
        """Returns the hidden states at the wanted positions, one after the other."""
        hidden: Tensor = self.model(tokens, attention_mask=attention_mask)
        return torch.cat([hidden[i, places] for i, places in enumerate(wanted)])

    def say(self, token: int) -> str:
        """Returns the text of a token; a special token has its name."""
        return self.words.decode([token]).strip() or self.pieces(token)[0].strip()


class QueryFiller(MaskedFiller):
    """XLNet: a blank has no content; a query row at its position predicts it."""

    def __init__(self, loaded: Checkpoint, top_k: int, order: str) -> None:
        super().__init__(loaded, top_k, order)
        self.model = loaded.model.unlimited()

    def frame(self, ids: list[int]) -> list[int]:
        cls, sep = self.special.cls, self.special.sep
        return ids if cls in ids or cls is None or sep is None else [*ids, sep, cls]

    def rows(
        self, tokens: Tensor, attention_mask: Tensor | None, wanted: list[list[int]]
    ) -> Tensor:
        order = torch.where(tokens == self.mask, 0, -1)
        most = max(map(len, wanted))
        targets = [places + [0] * (most - len(places)) for places in wanted]
        asking = torch.tensor(targets, device=tokens.device)
        hidden = self.model(tokens, attention_mask=attention_mask, order=order, targets=asking)
        return torch.cat([hidden[i, : len(places)] for i, places in enumerate(wanted)])


def coder(words: Tokenizer, mask: int) -> tuple[Fast, re.Pattern[str]]:
    """Returns a tokenizer that reads the mask as one token, and the pattern of blanks.

    If a tokenizer attaches a space to the word after it, the space before a blank belongs to the
    blank.
    """
    fast, name = words.ready, words.tokens([mask])[0]
    known = fast.get_added_tokens_decoder()
    if mask not in known:
        fast = Fast.from_str(fast.to_str())
        fast.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    attached = any(len(word) > 1 and word[0] in "Ġ▁" for word in fast.get_vocab())
    before = " ?" if attached else ""
    return fast, re.compile(f"{before}(?:{BLANK}|{re.escape(name)})")


class PieceTexts:
    """What single tokens of a tokenizer stand for inside a text."""

    def __init__(self, words: Tokenizer) -> None:
        facts = json.loads(words.ready.to_str())
        self.special = {token["id"] for token in facts["added_tokens"]}
        self.vocabulary = words.ready.get_vocab(with_added_tokens=False)
        self.pieces = {i: piece for piece, i in self.vocabulary.items()}
        self.names = words.ready.id_to_token
        self.surface = kind(facts, list(self.vocabulary))[1]
        self.inner = facts["model"].get("continuing_subword_prefix") or None

    def __call__(self, token: int) -> tuple[str, bool]:
        """Returns the text of a token with its own space, and whether it continues the word before
        it (BERT's ##)."""
        piece = self.pieces.get(token)
        if piece is None or token in self.special:
            return self.names(token) or "", False
        text = self.surface(piece).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return text, self.inner is not None and piece.startswith(self.inner)

    def white(self, vocab_size: int) -> list[int]:
        """Returns the ids that stand for white space alone."""
        ids = (i for i in self.pieces if i < vocab_size and i not in self.special)
        return [i for i in ids if not self(i)[0].strip()]


class SpanFiller:
    """T5: the source has a sentinel for every blank, and the target writes the text of each."""

    def __init__(self, loaded: Checkpoint, top_k: int, max_new_tokens: int) -> None:
        self.loaded, self.top, self.tokens = loaded, top_k, max_new_tokens
        prompts = Prompts(loaded)
        self.words, self.end = prompts.words(), loaded.model.config.eos_id
        self.marks = [] if prompts.special is None else prompts.special.sentinels
        if not self.marks:
            raise InputError(
                f"the tokenizer of this {type(loaded.model).__name__} has no sentinels for blanks "
                f"(<extra_id_0>, …); {fillers()}"
            )

    def fill(self, texts: list[str]) -> list[FilledText]:
        results = []
        for text in texts:
            source, count = self.marked(text)
            ends = [self.end, *self.marks[count : count + 1]]
            chosen = DecodingOptions.of(
                {
                    "num_beams": self.top,
                    "num_return_sequences": self.top,
                    "max_new_tokens": (self.tokens + 1) * count + 1,
                    "eos_ids": ends,
                }
                | ({"length_penalty": 0.0} if self.top > 1 else {})
            )
            decoder = Decoder(self.loaded, chosen)
            candidates = decoder.run([decoder.prompts.encode(source)], [0])[0]
            results.append(self.filled(source, count, candidates))
        return results

    def marked(self, text: str) -> tuple[str, int]:
        """Returns the text with numbered sentinels, and their number."""
        pattern = re.compile(f"{BLANK}|{SENTINEL.pattern}")
        count = len(pattern.findall(text))
        if count == 0:
            raise InputError(
                f"the text {shown(text)} has no blank; write one as [MASK], ___ or <extra_id_0>"
            )
        if count > len(self.marks):
            raise InputError(
                f"the text has {count} blanks, and this model has only {len(self.marks)} marks "
                "(sentinels) for them; use fewer blanks"
            )
        numbers = iter(range(count))
        return pattern.sub(lambda _: f"<extra_id_{next(numbers)}>", text), count

    def filled(self, source: str, count: int, generations: list[Generation]) -> FilledText:
        blanks: list[list[FillCandidate]] = []
        for number in range(count):
            candidates = [self.span(each, self.marks[number]) for each in generations]
            best: dict[str, FillCandidate] = {}
            for each in sorted(candidates, key=lambda c: -c.probability):
                best.setdefault(each.text, each)
            blanks.append(list(best.values()))
        first = [self.span(generations[0], mark).text for mark in self.marks[:count]]
        text = SENTINEL.sub(lambda match: first[int(match[1])], source)
        return FilledText(re.sub(r" +", " ", text), blanks)

    def span(self, generation: Generation, mark: int) -> FillCandidate:
        """Returns what was written for one sentinel, up to the next; nothing if it was left out."""
        if mark not in generation.ids:
            return FillCandidate("", [], 0.0)
        start = generation.ids.index(mark) + 1
        stops = {*self.marks, self.end}
        last = next(
            (i for i in range(start, len(generation.ids)) if generation.ids[i] in stops), None
        )
        ids, logprobs = generation.ids[start:last], generation.logprobs[start:last]
        return FillCandidate(self.words.decode(ids).strip(), ids, math.exp(sum(logprobs)))


def shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")
