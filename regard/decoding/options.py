"""The options of decoding with their defaults; they are checked before any work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.core.options import MAX_NEW_TOKENS, NUM_BEAMS, SEED, TEXTS_AT_ONCE, Option
from regard.core.tables import from_table

if TYPE_CHECKING:
    from regard.decoding.processors import Processor

PENALTIES = ("paper", "common")
STOPPING = ("certain", "estimate", "full")
PRECISIONS = ("own", "bf16")
OF_BEAMS = ("length_penalty", "length_penalty_form", "beam_stopping")


@dataclass(frozen=True)
class DecodingOptions:
    """Decoding is greedy unless an option asks for sampling (temperature, top_k, top_p, typical_p,
    num_samples) or for beams."""

    max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 100
    min_new_tokens: Annotated[
        int, Option("Generate at least N new tokens.", "--min-new-tokens", "N")
    ] = 0
    temperature: Annotated[
        float | None,
        Option("Sample; below 1 likely tokens become likelier, and 0 is greedy.", metavar="T"),
    ] = None
    top_k: Annotated[int | None, Option("Sample among the K likeliest tokens.", metavar="K")] = None
    top_p: Annotated[
        float | None,
        Option("Sample among the fewest tokens whose probabilities reach P.", metavar="P"),
    ] = None
    typical_p: Annotated[
        float | None,
        Option("Sample among the typical tokens whose probabilities reach P.", "--typical-p", "P"),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Option("Penalize tokens that occurred before; 1: no penalty.", "--repetition-penalty", "X"),
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        Option("Never generate the same N tokens in a row twice.", "--no-repeat-ngram-size", "N"),
    ] = None
    suppress_tokens: Sequence[int] | None = None  # ids never chosen; None: padding and mask
    begin_suppress_tokens: Sequence[int] | None = None  # ids that are not the first new token
    bad_words_ids: Sequence[Sequence[int]] | None = None  # sequences of ids that never occur
    forced_bos_token_id: int | None = None  # the second token of a text, after a single first one
    forced_eos_token_id: Sequence[int] | None = None  # one of them is the last token at the limit
    decoder_start_token_id: int | None = None  # the first token of a decoder; None: the model's
    decoder_input_ids: Sequence[int] | None = None  # the first tokens of a decoder's text
    max_length: int | None = None  # limits prompt and new tokens together, not the new ones alone
    min_length: int | None = None
    stop: Annotated[
        Sequence[str],
        Option("End the text before this word (\\n is a line break); may be repeated.",
               metavar="WORD"),
    ] = ()  # fmt: skip
    eos_ids: Sequence[int] | None = None  # ids that end a text; None: the model's own
    seed: Annotated[int, SEED] = 0
    num_samples: Annotated[int, Option("Sample N texts for each prompt.", "--num-samples", "N")] = 1
    num_beams: Annotated[int, NUM_BEAMS] = 1
    num_return_sequences: Annotated[
        int, Option("Return the N best texts of the beams.", "--num-return-sequences", "N")
    ] = 1
    length_penalty_form: Annotated[
        Literal["paper", "common"],
        Option("How a length n is penalized: paper is ((5+n)/6)^penalty, common is n^penalty.",
               "--length-penalty-form", "NAME"),
    ] = "paper"  # fmt: skip
    length_penalty: Annotated[
        float, Option("Higher values make beams prefer longer texts.", "--length-penalty", "X")
    ] = 0.6
    beam_stopping: Annotated[
        Literal["certain", "estimate", "full"],
        Option("The rule that ends a beam search.", "--beam-stopping"),
    ] = "certain"  # see beam.py
    top_logprobs: Annotated[
        int,
        Option("Record the N likeliest tokens at each place with their log-probabilities; --json "
               "prints them.", "--logprobs", "N"),
    ] = 0  # fmt: skip
    truncate: Annotated[bool, Option("Cut off the beginning of a prompt that is too long.")] = False
    draft: Annotated[
        str | None,
        Option("Guess tokens ahead and check them together: with a small MODEL of the same tokens, "
               "or by 'lookup' in the text; the texts are as without, in less time.",
               metavar="MODEL"),
    ] = None  # fmt: skip
    precision: str = "own"  # "bf16": autocast; a model that is loaded in bf16 is even faster
    batch_size: Annotated[int | None, TEXTS_AT_ONCE] = None
    first: int = 0  # the number of the first prompt: draws depend on (seed, number, sample, step)

    @classmethod
    def of(cls, table: dict[str, Any]) -> Self:
        if isinstance(table.get("stop"), str):
            table = table | {"stop": (table["stop"],)}
        options = from_table(cls, table, what="option", advice="(of decoding)")
        for name in ("max", "min"):
            if table.get(f"{name}_length") is not None and f"{name}_new_tokens" in table:
                raise ConfigError(
                    f"{name}_length and {name}_new_tokens contradict each other; give one of them"
                )
        options.check()
        for name in OF_BEAMS:
            value = getattr(options, name)
            if options.num_beams == 1 and value != getattr(cls, name):
                raise ConfigError(
                    f"{name} is {value}, which only beam search uses; leave it out, or set "
                    "num_beams to 2 or more"
                )
        return options

    def check(self) -> None:
        limits: list[tuple[str, float, float, str]] = [
            ("max_new_tokens", 1, math.inf, "at least 1"),
            (
                "min_new_tokens",
                0,
                math.inf if self.max_length else self.max_new_tokens,
                "from 0 to max_new_tokens",
            ),
            ("max_length", 1, math.inf, "at least 1"),
            ("min_length", 0, math.inf, "0 or more"),
            ("temperature", 0, math.inf, "0 (greedy) or more"),
            ("top_k", 1, math.inf, "at least 1"),
            ("no_repeat_ngram_size", 1, math.inf, "at least 1"),
            ("num_samples", 1, math.inf, "at least 1"),
            ("num_beams", 1, math.inf, "at least 1"),
            (
                "num_return_sequences",
                1,
                self.num_beams,
                "from 1 to num_beams (num_samples draws several texts)",
            ),
            ("top_logprobs", 0, math.inf, "0 (none are recorded) or more"),
            ("batch_size", 1, math.inf, "at least 1"),
            ("first", 0, math.inf, "0 or more"),
            ("seed", 0, math.inf, "0 or more"),
        ]
        for name, low, high, wanted in limits:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be {wanted}")
        for name in ("top_p", "typical_p", "repetition_penalty"):
            value = getattr(self, name)
            most = math.inf if name == "repetition_penalty" else 1.0
            if value is not None and not 0 < value <= most:
                raise ConfigError(
                    f"{name} is {value}; it must be above 0" + (" and at most 1" * (most == 1.0))
                )
        for name, known in (
            ("length_penalty_form", PENALTIES), ("beam_stopping", STOPPING), ("precision",
             PRECISIONS)
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise UnknownName(name, str(getattr(self, name)), known)
        if any(not word for word in self.bad_words_ids or ()):
            raise ConfigError("bad_words_ids holds an empty sequence; leave it out")
        if "" in self.stop:
            raise ConfigError("a stop word is empty and would end every text; leave it out")
        if self.num_beams > 1 and self.draws:
            raise ConfigError(
                f"num_beams is {self.num_beams}, and beams search for the likeliest text instead "
                "of drawing one; leave out temperature, top_k, top_p, typical_p and num_samples, "
                "or num_beams"
            )

        if self.draft is not None and self.num_beams > 1:
            raise ConfigError(
                f"draft is {self.draft!r} and num_beams is {self.num_beams}; a draft guesses one "
                "text ahead, so leave out one of the two"
            )

    @property
    def draws(self) -> bool:
        if self.temperature == 0:
            return False
        choices = (self.temperature, self.top_k, self.top_p, self.typical_p)
        return self.num_samples > 1 or any(value is not None for value in choices)

    def tokens(self) -> dict[str, Sequence[int]]:
        """Returns the ids in each option that names tokens."""
        single = {name: getattr(self, name) for name in ("forced_bos_token_id",
                                                         "decoder_start_token_id")}  # fmt: skip
        listed = {name: getattr(self, name) for name in ("suppress_tokens", "decoder_input_ids",
                  "begin_suppress_tokens", "forced_eos_token_id")}  # fmt: skip
        words = {"bad_words_ids": [i for word in self.bad_words_ids or () for i in word]}
        one = {name: [token] for name, token in single.items() if token is not None}
        return one | {name: ids or () for name, ids in listed.items()} | words

    def limits(self, before: int) -> tuple[int, int]:
        """Returns the most and the least new tokens of a text that begins with `before` tokens."""
        most, least = self.max_new_tokens, self.min_new_tokens
        if self.max_length is not None:
            most = self.max_length - before
            if most < 1:
                raise InputError(
                    f"the text has {before:,} tokens already, and max_length is "
                    f"{self.max_length:,}; shorten it, or give max_new_tokens"
                )
        if self.min_length is not None:
            least = max(0, self.min_length - before)
        return most, min(most, least)

    def processors(
        self, ends: Sequence[int], suppressed: Sequence[int], most: int, least: int
    ) -> Processor | None:
        """Returns the processors in the order of transformers' generate; None if there are none."""
        from regard.decoding import processors as change

        chosen: list[Processor] = []
        if self.repetition_penalty not in (None, 1.0):
            chosen.append(change.repetition(float(self.repetition_penalty or 1.0)))
        if self.no_repeat_ngram_size is not None:
            chosen.append(change.no_repeat(self.no_repeat_ngram_size))
        words = [word for word in self.bad_words_ids or () if [*word] not in [[e] for e in ends]]
        if words:
            chosen.append(change.bad_words(words))
        if least and ends:
            chosen.append(change.at_least(least, ends))
        if self.forced_bos_token_id is not None:
            chosen.append(change.forced_first(self.forced_bos_token_id))
        if self.forced_eos_token_id is not None:
            chosen.append(change.forced_last(self.forced_eos_token_id, most))
        if suppressed:
            chosen.append(change.suppressed(suppressed))
        if self.begin_suppress_tokens:
            forced = self.forced_bos_token_id is not None
            chosen.append(change.suppressed_first(self.begin_suppress_tokens, forced))
        if self.draws:
            if self.temperature not in (None, 1.0):
                chosen.append(change.temperature(float(self.temperature or 1.0)))
            if self.top_k is not None:
                chosen.append(change.top_k(self.top_k))
            if self.top_p is not None and self.top_p < 1.0:
                chosen.append(change.top_p(self.top_p, self.top_k or change.SHORTLIST[0]))
            if self.typical_p is not None and self.typical_p < 1.0:
                chosen.append(change.typical(self.typical_p))
        return change.chain(chosen) if chosen else None
