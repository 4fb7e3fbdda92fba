"""Reads a page as a program does: its tags, its text, its tables and the data that it carries."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "link", "img", "input"}
HOSTILE = (
    '</script><script>alert("1")</script> & "quotes" \'\u2028\u202e<img src=x onerror=alert(2)>'
)


class Page(HTMLParser):
    """Tags that close what they open, ids that come once, nothing from elsewhere, and a content
    security policy under which the page's own scripts and style run, and no others.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html, self.open, self.tags = html, [], []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.inside: dict[str, list[tuple[dict[str, str | None], str]]] = {}
        self.words: list[str] = []
        self.policy = ""
        self.feed(html)
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        self.check_policy()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.tags.append(tag)
        self.ids += [values["id"]] if values.get("id") else []
        addresses = [v or "" for k, v in attributes if k in ("src", "href")]
        self.fetched += [address for address in addresses if not address.startswith("#")]
        assert "style" not in values, "the policy forbids style attributes"
        assert not [name for name in values if name.startswith("on")]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""
        if tag in ("script", "style"):
            self.inside.setdefault(tag, []).append((values, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        last = self.open[-1] if self.open else ""
        if last in ("script", "style"):
            values, text = self.inside[last].pop()
            self.inside[last].append((values, text + data))
        else:
            self.words.append(data)

    def check_policy(self) -> None:
        allowed = re.findall(r"'sha256-([^']+)'", self.policy)
        run = [t for v, t in self.inside["script"] if v.get("type") != "application/json"]
        run += [text for _, text in self.inside["style"]]
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
        assert self.policy.startswith("default-src 'none';") and "unsafe" not in self.policy
        assert hashes == allowed and len(run) == 3

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        (text,) = [t for v, t in self.inside["script"] if v.get("id") == "data"]
        assert "<" not in text
        return dict(json.loads(text))

    def chart(self, name: str) -> dict[str, Any]:
        return dict(self.data["charts"][name])

    def table(self, name: str) -> list[list[float]]:
        """The exact numbers of each row."""
        own = re.search(rf'<table[^>]* data-table="{name}">(.*?)</table>', self.html, re.S)
        assert own is not None, name
        rows = re.findall(r"<tr>(.*?)</tr>", own[1].partition("<tbody>")[2], re.S)
        return [[float(x) for x in re.findall(r'<data value="([^"]+)"', row)] for row in rows]
