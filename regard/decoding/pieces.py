"""Turns growing tokens into text: only whole characters, and stop words across tokens."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.tokenizer import Tokenizer

BROKEN = "\ufffd"  # the text of a character with missing bytes
BYTES = 3  # the most bytes of an incomplete character
CONTEXT = 8  # the tokens before the new ones that can change their text
WINDOW = 32  # the most tokens that are decoded again at each step


class TokenStream:
    """The text of one token after the other, as part of a text that begins with `before`.

    The text of a token depends on its neighbors (a space, a mark for the middle of a word, the
    bytes of a character), so a window of tokens is decoded, and its new text is returned. A
    character of several tokens is returned when it is complete.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.window = list(before)
        text = self.decode()
        self.said = len(text)  # the characters of the window's text that were returned
        self.shorten(text, CONTEXT)

    def decode(self) -> str:
        return self.tokenizer.decode(self.window)

    def add(self, *tokens: int) -> str:
        """Returns the text that these tokens make certain: often a word, sometimes nothing."""
        self.window += tokens
        text = self.decode()
        waiting = len(text) - len(text.rstrip(BROKEN))
        certain = len(text) - min(waiting, BYTES)
        piece, self.said = text[self.said : certain], max(self.said, certain)
        if not waiting and len(self.window) > WINDOW:
            self.shorten(text, CONTEXT)
        return piece

    def finish(self) -> str:
        """Returns the text that was still waiting; incomplete characters now stay incomplete."""
        text = self.decode()
        piece, self.said = text[self.said :], max(self.said, len(text))
        return piece

    def shorten(self, text: str, count: int) -> None:
        """Drops all but the last tokens, if these alone are decoded as they were in the window."""
        if len(self.window) <= count or self.said < len(text):
            return
        short = self.tokenizer.decode(self.window[-count:])
        if short and text.endswith(short) and not short.startswith(BROKEN):
            self.window, self.said = self.window[-count:], len(short)


class StopWords:
    """Passes text on until a stop word; text that may be the beginning of one is held back."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.waiting, self.over = tuple(words), "", False

    def add(self, piece: str) -> str:
        """Returns the text that is certainly before any stop word; `over` is True after one."""
        text = self.waiting + piece
        places = [at for word in self.words if (at := text.find(word)) >= 0]
        if places:
            self.over, self.waiting = True, ""
            return text[: min(places)]
        longest = max((len(word) - 1 for word in self.words), default=0)
        for size in range(min(longest, len(text)), 0, -1):
            if any(word.startswith(text[-size:]) for word in self.words):
                self.waiting = text[-size:]
                return text[:-size]
        self.waiting = ""
        return text

    def finish(self) -> str:
        text, self.waiting = self.waiting, ""
        return text


class TextStreamer:
    """The text of one continuation, piece by piece, up to its end or a stop word."""

    def __init__(
        self, tokenizer: Tokenizer, before: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        self.pieces = TokenStream(tokenizer, before)
        self.stops = StopWords(stop)
        self.parts: list[str] = []

    @property
    def over(self) -> bool:
        return self.stops.over

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add(self, *tokens: int) -> str:
        return self.say(self.stops.add(self.pieces.add(*tokens)))

    def finish(self) -> str:
        """Returns the rest; it may still contain a stop word."""
        if self.over:
            return ""
        rest = self.stops.add(self.pieces.finish())
        return self.say(rest if self.over else rest + self.stops.finish())

    def say(self, text: str) -> str:
        if text:
            self.parts.append(text)
        return text
