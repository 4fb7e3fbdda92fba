"""From tokens to text as it grows: whole characters only, and stop words across tokens."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.tokenizer import Tokenizer

BROKEN = "\ufffd"  # what a decoder shows of a character of which bytes are missing
BYTES = 3  # of a character that may be waiting for its last one
CONTEXT = 8  # tokens before the new ones that decide how these are written
WINDOW = 32  # tokens decoded again at each step


class TokenStream:
    """Text of one token after the other, as part of a text that begins with `before`.

    A token's text depends on its neighbors (a space, a mark for the middle of a word, the bytes of
    a character), so a window of tokens is decoded, and what is new in it is given. A character of
    several tokens comes when it is complete.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.window = list(before)
        text = self.decode()
        self.said = len(text)  # characters of the window's text that have been given
        self.shorten(text, CONTEXT)

    def decode(self) -> str:
        return self.tokenizer.decode(self.window)

    def add(self, *tokens: int) -> str:
        """What has become certain by these tokens; of one often a word, sometimes nothing."""
        self.window += tokens
        text = self.decode()
        waiting = len(text) - len(text.rstrip(BROKEN))
        certain = len(text) - min(waiting, BYTES)
        piece, self.said = text[self.said : certain], max(self.said, certain)
        if not waiting and len(self.window) > WINDOW:
            self.shorten(text, CONTEXT)
        return piece

    def finish(self) -> str:
        """What was still waiting; broken characters now stay so."""
        text = self.decode()
        piece, self.said = text[self.said :], max(self.said, len(text))
        return piece

    def shorten(self, text: str, count: int) -> None:
        """Forgets all but the last tokens, where these alone read as they did in the window."""
        if len(self.window) <= count or self.said < len(text):
            return
        short = self.tokenizer.decode(self.window[-count:])
        if short and text.endswith(short) and not short.startswith(BROKEN):
            self.window, self.said = self.window[-count:], len(short)


class StopWords:
    """Passes text on until a stop word; what may be the beginning of one waits."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.waiting, self.over = tuple(words), "", False

    def add(self, piece: str) -> str:
        """The text that certainly comes before any stop word; `over` says that one was there."""
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
        """The rest; a stop word may still hide in it."""
        if self.over:
            return ""
        rest = self.stops.add(self.pieces.finish())
        return self.say(rest if self.over else rest + self.stops.finish())

    def say(self, text: str) -> str:
        if text:
            self.parts.append(text)
        return text
