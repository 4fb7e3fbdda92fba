"""Renders chat templates in one process of its own, with limits of time and memory.

A template is a small program of unknown origin. jinja's sandbox keeps it from files and from the
rest of Python, but not from nested loops or from texts of gigabytes; another process can be ended.
It starts with the first template, serves one request at a time, is replaced when it dies, and ends
with this process. Where the system has no RLIMIT_AS (Windows; macOS ignores it), only its time and
the length of its text are limited.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import FormatError
from regard.core.files import parse_json
from regard.data.tokenizer import Tokenizer
from regard.decoding.template_worker import LONGEST, MEMORY, SECONDS

Turn = dict[str, str]  # "role": user, assistant or system; "content"
TEMPLATE_LIMIT = 2**18  # the most characters of a template
OWN_FILE, CONFIG = "chat_template.jinja", "tokenizer_config.json"
PATIENCE = 60  # the most seconds until the process is ready
PLAIN = "repair it, or use the plain format (--plain)"


@dataclass(frozen=True)
class ChatTemplate:
    text: str
    file: str = "the chat template"  # where it stands, for messages

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise FormatError(f"the chat template in {self.file} is empty; {PLAIN}")
        if len(self.text) > TEMPLATE_LIMIT:
            raise FormatError(
                f"the chat template in {self.file} has {len(self.text):,} characters; the most is "
                f"{TEMPLATE_LIMIT:,}; {PLAIN}"
            )

    def render(self, turns: Sequence[Turn], names: dict[str, str]) -> str:
        """Returns the prompt; `names` are the special tokens that the template may use."""
        request = {"template": self.text, "messages": list(turns), "names": names}
        answer = WORKER.ask(request)
        text = answer.get("text")
        if isinstance(text, str) and text:
            return text
        place = f"{self.file}, line {answer['line']}" if answer.get("line") else self.file
        reason = answer.get("error", "it writes nothing")
        raise FormatError(f"the chat template in {place} fails: {reason}; {PLAIN}")


def template_of(tokenizer: Tokenizer) -> ChatTemplate | None:
    """Returns the chat template in a tokenizer's files; of several, the one named "default"."""
    if OWN_FILE in tokenizer.files:
        try:
            return ChatTemplate(tokenizer.files[OWN_FILE].decode(), OWN_FILE)
        except UnicodeDecodeError as error:
            raise FormatError(f"{OWN_FILE} is not UTF-8 text: {error}; {PLAIN}") from None
    if CONFIG not in tokenizer.files:
        return None
    config = parse_json(
        tokenizer.files[CONFIG], CONFIG, error=FormatError, advice=PLAIN, repeated=True
    )
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {
            str(each.get("name")): each.get("template") for each in template
            if isinstance(each, dict)
        }  # fmt: skip
        if "default" not in named:
            names = ", ".join(map(repr, named)) or "none"
            raise FormatError(
                f"{CONFIG} has chat templates ({names}), but none is called 'default'; {PLAIN}"
            )
        template = named["default"]
    if template is not None and not isinstance(template, str):
        kind = type(template).__name__
        raise FormatError(f"chat_template in {CONFIG} is {kind} instead of text; {PLAIN}")
    return None if template is None else ChatTemplate(template, CONFIG)


class TemplateWorker:
    """The process that renders, and the lock that lets one thread at a time ask it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns {"text"}, or {"error"} and perhaps {"line"}."""
        line = json.dumps(request).encode() + b"\n"
        with self.lock:
            fresh = self.process is None
            try:
                content, late = self.exchange(self.running(), line, SECONDS)
                if not content and not late and not fresh:  # it had died before it was asked
                    content, late = self.exchange(self.running(), line, SECONDS)
            except BaseException:  # interrupted: an answer that is still coming has no reader
                self.end()
                raise
        if late:
            return {"error": f"it takes longer than {SECONDS} seconds"}
        if not content:
            return {"error": f"it ends its process, which may use {MEMORY >> 20} MiB of memory"}
        answer: dict[str, Any] = json.loads(content)
        return answer

    def exchange(
        self, process: subprocess.Popen[bytes], line: bytes, seconds: float
    ) -> tuple[bytes, bool]:
        """Sends a line and returns the line that answers it, empty if the process has died, and
        whether it took too long. A process without an answer is ended."""
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def end_it() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end_it)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            content = process.stdout.readline(12 * LONGEST)  # a character has up to 12 bytes
        except OSError:  # it has died
            content = b""
        finally:
            timer.cancel()
        if content.endswith(b"\n") and not late.is_set():
            return content, False
        self.end()
        return b"", late.is_set()

    def running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.end()
            if importlib.util.find_spec("jinja2") is None:
                raise FormatError(
                    "this tokenizer has a chat template, which needs jinja2; install it, or use "
                    "--plain"
                )
            program = Path(__file__).with_name("template_worker.py")
            command = [sys.executable, "-I", str(program), json.dumps(sys.path)]
            process = self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            if not self.exchange(process, b"", PATIENCE)[0]:
                raise FormatError(
                    f"the program that renders chat templates does not start ({program}); use the "
                    "plain format (--plain)"
                )
            return process
        return self.process

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # what could not be written is lost
                    pipe.close()  # type: ignore[union-attr]
            process.wait()

    def forget(self) -> None:
        """In a forked child: the process belongs to the parent."""
        self.lock, self.process = threading.Lock(), None


WORKER = TemplateWorker()
atexit.register(WORKER.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKER.forget)
