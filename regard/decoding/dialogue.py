"""Dialogue: turns as a prompt, in the format of the tokenizer's chat template or in a plain one.

The plain format has no words of its own: for a model that continues a text, and for an encoder,
which reads the last turns, every turn is followed by the end token.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.core.errors import ConfigError, InputError
from regard.decoding.generation import Decoder, Generation
from regard.decoding.generation_config import options_for
from regard.decoding.options import DecodingOptions
from regard.decoding.prompts import readable
from regard.decoding.templates import Turn, template_of
from regard.formats.directory import Checkpoint


@dataclass
class Conversation:
    """A conversation with one model."""

    loaded: Checkpoint
    options: DecodingOptions
    plain: bool = False  # True: the template is not used
    memory: int | None = None  # the earlier turns that the model reads; None: all that fit
    turns: list[Turn] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        loaded: Checkpoint,
        options: dict[str, Any],
        system: str | None = None,
        plain: bool = False,
        max_turns: int | None = None,
    ) -> Conversation:
        """Begins a conversation that samples with temperature 0.8 and top_p 0.9, unless the options
        or the model's directory say otherwise."""
        if max_turns is not None and max_turns < 0:
            raise ConfigError(f"--max-turns is {max_turns}; it must be 0 or more")
        one = {"num_beams": 1, "num_samples": 1}  # an answer is shown as it grows
        decoding = options_for(loaded, one | options, {"temperature": 0.8, "top_p": 0.9})
        turns: list[Turn] = []
        if system is not None:
            turns.append({"role": "system", "content": system})
        return cls(loaded, decoding, plain, max_turns, turns)

    def __post_init__(self) -> None:
        self.decoder = Decoder(self.loaded, self.options)
        self.prompts = self.decoder.prompts
        self.words = self.prompts.words()
        self.template = None if self.plain else template_of(self.words)
        if self.memory is None and self.prompts.pair:
            self.memory = 0

    def reset(self) -> None:
        """Deletes all turns except those of the system."""
        self.turns = [turn for turn in self.turns if turn["role"] == "system"]

    def say(self, text: str) -> Generator[str, None, Generation]:
        """Yields the answer to a turn, piece by piece; both turns are stored."""
        self.turns.append({"role": "user", "content": readable(text)})
        try:
            prompt = self.prompt()
            answer = yield from self.decoder.stream(prompt, len(self.turns))
        except BaseException:
            self.turns.pop()
            raise
        self.turns.append({"role": "assistant", "content": (answer.text or "").strip()})
        return answer

    def prompt(self) -> list[int]:
        """Returns as many of the last turns as fit, with room for the answer."""
        limit = getattr(self.prompts.config, "context", None)
        room = None if limit is None else max(limit - self.options.max_new_tokens, limit // 2)
        system = [turn for turn in self.turns if turn["role"] == "system"]
        rest = [turn for turn in self.turns if turn["role"] != "system"]
        if self.memory is not None:
            rest = rest[max(0, len(rest) - 1 - self.memory) :]
        while True:
            ids = self.encode([*system, *rest])
            if room is None or len(ids) <= room:
                return ids
            if len(rest) > 1:
                rest = rest[2:] if len(rest) > 2 else rest[1:]
            elif self.template is None:
                return ids[-room:]  # the end of a single turn that is too long
            else:
                raise InputError(
                    f"this turn has {len(ids):,} tokens, and only {room:,} fit with an answer; "
                    "shorten it"
                )

    def encode(self, turns: Sequence[Turn]) -> list[int]:
        if self.template is not None:
            text = self.template.render(turns, self.names())
            ids = self.words.encode(text, special=False)
            end = self.prompts.config.eos_id if self.prompts.pair else None
            return ids if end is None or ids[-1:] == [end] else [*ids, end]
        end = self.prompts.end()
        return [i for t in turns for i in [*self.words.encode(t["content"], special=False), end]]

    def names(self) -> dict[str, Any]:
        """Returns the special tokens by the names that templates use."""
        special = self.prompts.special
        ids = {} if special is None else {
            "bos_token": special.start, "eos_token": special.end, "pad_token": special.pad,
            "unk_token": special.unknown,
        }  # fmt: skip
        return {n: "" if i is None else self.words.tokens([i])[0] for n, i in ids.items()}
