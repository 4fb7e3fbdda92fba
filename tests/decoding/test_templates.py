"""Chat templates: in a process of their own, with limits, and with our errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import FormatError
from regard.data.tokenizer import Tokenizer
from regard.decoding import template_worker
from regard.decoding.templates import WORKER, ChatTemplate, template_of
from tests.decoding.small import tokenizer
from tests.refusals import refuses

TURNS = [{"role": "user", "content": "a"}]
RUNNING = """
from regard.decoding.templates import WORKER, ChatTemplate
assert WORKER.process is None
print(ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": "hi"}], {}))
print(WORKER.process.pid, flush=True)
"""


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception('no system turns here') }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ 'a' * 10**9 }}",
        "{{ 'a' * 10**8 }}",
        "{{ 10**(10**9) }}",
        "{{ '%0999999999d' % 1 }}",
        "{# nothing #}",
    ],
)
def test_a_template_can_do_no_harm(template: str) -> None:
    with refuses(FormatError, "chat template", "x.jinja"):
        ChatTemplate(template, "x.jinja").render(TURNS, {})
    assert ChatTemplate("{{ messages[0].content }}").render(TURNS, {}) == "a"


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ lipsum(n=10**6) }}",
        "{{ ('a ' * 10**7) | wordwrap(3) }}",
    ],
    ids=["loops", "lipsum", "wordwrap"],
)
def test_a_template_has_a_few_seconds(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.decoding.templates.SECONDS", 1)
    with refuses(FormatError, "1 second"):
        ChatTemplate(template).render(TURNS, {})
    assert ChatTemplate("{{ messages[0].content }}").render(TURNS, {}) == "a"


@pytest.mark.parametrize(
    ("template", "line"),
    [("ok\n{% if %}", 2), ("ok\n\n{{ messages[0].content + 1 }}", 3), ("{% endfor %}", 1)],
)
def test_the_line_that_fails_is_named(template: str, line: int) -> None:
    with refuses(FormatError, f"x.jinja, line {line}"):
        ChatTemplate(template, "x.jinja").render(TURNS, {})


def test_what_templates_of_transformers_use() -> None:
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m | tojson(indent=1) }}{% endfor %}{% if tools is not none %}tools{% endif %}"
    )
    turns = [{"role": "user", "content": "好"}, {"role": "user", "content": "b"}]
    expected = json.dumps(turns[0], indent=1, ensure_ascii=False)
    assert ChatTemplate(template).render(turns, {}) == expected


def with_files(**files: bytes) -> Tokenizer:
    known = tokenizer("bytes-bpe")
    own = {"own": "chat_template.jinja", "config": "tokenizer_config.json"}
    return Tokenizer(known.fast, known.files | {own[name]: text for name, text in files.items()})


def in_config(value: Any) -> bytes:
    return json.dumps({"chat_template": value}).encode()


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"own": b""}, "chat_template.jinja"),
        ({"own": b" \n "}, "chat_template.jinja"),
        ({"own": b"\xff\xfe"}, "chat_template.jinja"),
        ({"own": b"x" * 2**18 + b"x"}, "chat_template.jinja"),
        ({"config": in_config("")}, "tokenizer_config.json"),
        ({"config": in_config(5)}, "tokenizer_config.json"),
        ({"config": in_config([])}, "tokenizer_config.json"),
        ({"config": in_config([{"name": "tool", "template": "x"}])}, "tool"),
        ({"config": in_config([{"name": "default", "template": 3}])}, "tokenizer_config.json"),
        ({"config": b"[" * 10**6}, "tokenizer_config.json"),
        ({"config": b"[]"}, "tokenizer_config.json"),
        ({"config": b"\xff"}, "tokenizer_config.json"),
    ],
)
def test_broken_files_are_refused(files: dict[str, bytes], named: str) -> None:
    with refuses(FormatError, named):
        template_of(with_files(**files))


def test_the_worker_is_one_and_is_replaced() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    with ThreadPoolExecutor(8) as pool:
        texts = [str(i) for i in range(200)]
        turns = [[{"role": "user", "content": text}] for text in texts]
        assert list(pool.map(lambda each: template.render(each, {}), turns)) == texts
    assert WORKER.process is not None
    first = WORKER.process.pid
    assert template.render(TURNS, {}) == "a" and WORKER.process.pid == first
    os.kill(first, signal.SIGKILL)
    assert template.render(TURNS, {}) == "a" and WORKER.process.pid != first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_its_own() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    template.render(TURNS, {})
    assert WORKER.process is not None
    own = WORKER.process.pid
    child = os.fork()
    if child == 0:
        try:
            same = template.render(TURNS, {}) == "a" and WORKER.process.pid != own
            WORKER.end()
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert template.render(TURNS, {}) == "a" and WORKER.process.pid == own


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_worker_ends_with_its_parent(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNNING + end], capture_output=True, text=True, check=not end
    )
    text, pid = done.stdout.split()
    assert text == "hi"
    for _ in range(100):
        if not is_running(int(pid)):
            return
        signal.sigtimedwait([], 0.1)
    raise AssertionError(pid)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"


def test_the_worker_imports_no_library_of_ours() -> None:
    names = ["torch", "numpy", "regard.core"]
    code = (
        "import sys, json; sys.argv = ['', json.dumps(sys.path)]; import runpy, io\n"
        "sys.stdin = io.TextIOWrapper(io.BytesIO(b''))\n"
        f"path = {template_worker.__file__!r}\n"
        "runpy.run_path(path, run_name='__main__')\n"
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[1] == "[]"
