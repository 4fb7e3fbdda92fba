"""A page as a browser reads it, without one."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags that close what they open, all text, and everything the page could fetch."""

    VOID = {"meta", "br", "link", "img", "input"}

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())
        self.fetched, self.styles, self.ids = (
            [value for name, value in self.attributes if name in names]
            for names in (("src", "href"), ("style",), ("id",))
        )

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
