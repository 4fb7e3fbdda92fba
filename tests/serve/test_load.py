"""Too much, too long, too slow, gone: what a server refuses, and that it works on afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from regard.api import load
from regard.core.errors import ConfigError
from regard.serve.models import named
from regard.serve.options import ServeOptions
from tests.refusals import refuses
from tests.serve.running import Running, refusal, running
from tests.tasks.world import World

LONG: dict[str, Any] = {  # no token may end it
    "model": "gpt", "prompt": [5, 6], "max_tokens": 100_000, "min_tokens": 100_000,
}  # fmt: skip
SHORT: dict[str, Any] = {"model": "gpt", "prompt": [5, 6], "max_tokens": 3, "temperature": 0}


def rows(server: Running) -> int:
    batcher = server.models.models["gpt"].worker.generation.batcher
    return 0 if batcher is None else len(batcher.running)


def test_a_full_queue(world: World) -> None:
    with running([world.model("gpt")], rows=1, queue=1, max_new_tokens=100_000) as server:
        with (
            server.client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as one,
            ThreadPoolExecutor(1) as pool,
        ):
            lines = one.iter_lines()
            next(lines)
            waiting = pool.submit(server.client.post, "/v1/completions", json=SHORT)
            server.wait(lambda: server.models.models["gpt"].worker.generation.waiting)
            answer = server.client.post("/v1/completions", json=SHORT)
            refusal(answer, 429, "gpt", "1")
            assert int(answer.headers["retry-after"]) >= 1
            one.close()
            assert waiting.result().status_code == 200
        server.refused(400, "/v1/completions", "5", "1", **SHORT | {"prompt": [[1]] * 5})
        assert server.figure("regard_refused_total") == 1


def test_a_deadline(world: World) -> None:
    options: dict[str, Any] = {"deadline": 0.7, "max_new_tokens": 100_000}
    with running([world.model("gpt")], **options) as server:
        begun = time.monotonic()
        error = server.refused(504, "/v1/completions", "deadline", **LONG)
        assert error["code"] == "deadline_exceeded" and time.monotonic() - begun < 10
        answer = server.client.post("/v1/completions", json={**LONG, "stream": True})
        last = answer.text.strip().splitlines()[-1]  # the status was sent before
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
        server.wait(lambda: rows(server) == 0)
        assert server.client.post("/v1/completions", json=SHORT).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes(world: World, stream: bool) -> None:
    with running([world.model("gpt")], max_new_tokens=100_000) as server:
        with httpx.Client(base_url=server.url) as client:
            if stream:
                with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as one:
                    lines = one.iter_lines()
                    next(lines)
                    assert rows(server) == 1
            else:
                with pytest.raises(httpx.ReadTimeout):
                    client.post("/v1/completions", json=LONG, timeout=0.5)
        server.wait(lambda: rows(server) == 0)
        assert server.client.post("/v1/completions", json=SHORT).status_code == 200


def test_keys(world: World) -> None:
    with running([world.model("gpt")], api_key="open sesame") as server:
        assert server.client.get("/v1/models").status_code == 200
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "open sesame"}):
            answer = httpx.get(f"{server.url}/v1/models", headers=headers)
            refusal(answer, 401, "Authorization")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "sesame" not in answer.text
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert httpx.get(f"{server.url}/metrics").status_code == 401


def test_large_and_slow_bodies(world: World) -> None:
    with running([world.model("gpt")], max_body=1000, patience=0.5) as server:
        server.refused(413, "/v1/completions", "1,000", model="gpt", prompt="a" * 2000)

        def parts() -> Any:  # without a length
            for _ in range(30):
                yield b"a" * 100

        refusal(httpx.post(f"{server.url}/v1/completions", content=parts()), 413, "1,000")
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 50\r\n\r\n{"
            )
            slow.settimeout(10)
            assert b" 408 " in slow.recv(4000)
        assert server.client.post("/v1/completions", json=SHORT).status_code == 200


def test_who_sends_a_large_body_to_its_end_is_answered(world: World) -> None:
    """A proxy that is cut off while it sends would say 502."""
    with running([world.model("gpt")], max_body=1000) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(
                b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000000\r\n\r\n"
            )
            for _ in range(8):
                client.sendall(b"a" * 1_000_000)  # fails if the server has closed
            assert b" 413 " in client.recv(4000)


def heard(server: Running, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What a server says to bytes that come piece by piece, until it closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    parts = []
    with socket.create_connection((host, int(port)), timeout=10) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
                time.sleep(pause)
        except OSError:
            pass  # it has been closed
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_heads_that_never_end(world: World) -> None:
    """What is no request costs neither memory nor a connection for longer than --patience."""
    with running([world.model("gpt")], patience=0.5) as server:
        begun = time.monotonic()
        assert heard(server) == b""
        assert b" 408 " in heard(server, b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        assert time.monotonic() - begun < 8
        line = b"x-long: " + b"a" * 8000 + b"\r\n"
        lines = [
            b"GET /health HTTP/1.1\r\nhost: localhost\r\n",
            *[line] * 9,
        ]  # the last is too much
        answer = heard(server, *lines, pause=0.02)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b" 431 " in head and "65,536" in json.loads(body)["error"]["message"]
        head, _, body = heard(server, b"\x16\x03\x01 no HTTP\r\n\r\n").partition(b"\r\n\r\n")
        assert b" 400 " in head and "HTTP" in json.loads(body)["error"]["message"]
        slow = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        assert b'"ok"' in heard(server, slow[:20], slow[20:], pause=0.2)
        server.wait(lambda: not server.server.server_state.connections)


def test_more_requests_than_can_be_answered(world: World) -> None:
    with running([world.model("gpt")], rows=1, queue=1, patience=20.0) as server:
        most = server.server.gate.state.most
        host, port = server.url.removeprefix("http://").split(":")
        head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
        slow = [socket.create_connection((host, int(port))) for _ in range(most)]
        for each in slow:
            each.sendall(head)  # and no body
        server.wait(lambda: server.server.gate.state.active == most)
        answer = server.client.post("/v1/completions", json=SHORT)
        refusal(answer, 429, most)
        assert answer.headers["retry-after"] == "1"
        assert server.client.get("/health").status_code == 200
        for each in slow:
            each.close()
        server.wait(lambda: server.server.gate.state.active == 0)
        assert server.client.post("/v1/completions", json=SHORT).status_code == 200


SITES: list[tuple[int, str, dict[str, str], str]] = [
    (403, "/v1/models", {"host": "evil.example"}, "evil.example"),
    (403, "/", {"host": "evil.example:8000"}, "evil.example"),
    (403, "/v1/models", {"host": "127.0.0.1.evil.example"}, "evil.example"),
    (403, "/v1/models", {"host": "10.0.0.1"}, "10.0.0.1"),
    (403, "/v1/models", {"host": "[::"}, "["),
    (403, "/v1/models", {"origin": "http://evil.example"}, "evil.example"),
    (403, "/v1/models", {"origin": "null"}, "null"),
    (403, "/v1/models", {"origin": "http://127.0.0.1:1"}, "127.0.0.1:1"),
    (200, "/v1/models", {"host": "localhost:9"}, ""),
    (200, "/v1/models", {"host": "LOCALHOST"}, ""),
    (200, "/v1/models", {"host": "[::1]:8000", "origin": "http://[::1]:8000"}, ""),
    (200, "/health", {"host": "evil.example"}, ""),
]


def test_pages_of_other_sites(world: World) -> None:
    """Without a key they are refused, whatever name they give this machine (DNS rebinding)."""
    with running([world.model("gpt")]) as server:
        for status, path, headers, part in SITES:
            answer = server.client.get(path, headers=headers)
            if status == 200:
                assert answer.status_code == 200, headers
            else:
                assert refusal(answer, 403, part, "--api-key")["code"] == "other_site"
            assert "access-control-allow-origin" not in answer.headers
    with running([world.model("gpt")], api_key="open sesame") as server:
        headers = {"host": "models.example.org", "origin": "https://models.example.org"}
        assert server.client.get("/v1/models", headers=headers).status_code == 200


def test_a_client_that_does_not_read(world: World) -> None:
    options: dict[str, Any] = {"patience": 0.5, "max_new_tokens": 100_000, "send_buffer": 4096}
    with running([world.model("gpt")], **options) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({**LONG, "stream": True, "logprobs": 20}).encode()
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            head = (
                f"POST /v1/completions HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {len(body)}\r\n"
            )
            slow.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
            server.wait(lambda: rows(server) == 1)
            server.wait(lambda: rows(server) == 0, 60)
        assert server.client.post("/v1/completions", json=SHORT).status_code == 200


def test_idle_models_are_unloaded(world: World) -> None:
    with running([world.model("gpt")], keep=0.3) as server:
        model = server.models.models["gpt"]
        first = server.post("/v1/completions", **SHORT)["choices"]
        server.wait(lambda: model.loaded is None)
        assert server.figure("regard_loaded") == 0
        assert server.post("/v1/completions", **SHORT)["choices"] == first
        assert server.figure("regard_loaded") == 1


def test_a_model_that_breaks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of ours is a 500 that tells nothing, and the server goes on."""
    with running([world.model("gpt")]) as server:
        right = server.post("/v1/completions", **SHORT)["choices"]
        model = server.loaded("gpt").model

        def broken(*inputs: Any, **more: Any) -> Any:
            raise RuntimeError("/secret/place")

        with monkeypatch.context() as patch:
            patch.setattr(model, "forward", broken)
            error = server.refused(500, "/v1/completions", "log", **SHORT)
            assert error["type"] == "server_error" and "secret" not in json.dumps(error)
            server.refused(500, "/embed", "log", inputs="the film")
        assert server.post("/v1/completions", **SHORT)["choices"] == right


@pytest.mark.parametrize("precision", ["bf16", "int8", "int8-dynamic"])
def test_precisions(world: World, precision: str) -> None:
    """A small model is what Python opens and quantizes; its batches obey the same rule."""
    with running([world.model("gpt")], precision=precision) as server:
        loaded = server.loaded("gpt")
        if precision != "bf16":
            assert "int8" in loaded.model.extensions
        answer = server.post("/v1/completions", **SHORT)
        assert answer["choices"][0]["text"] == loaded.generate([5, 6], max_new_tokens=3).text
        assert server.client.get("/v1/models").json()["data"][0]["precision"] == precision


@pytest.mark.parametrize("cache, share", [("bf16", 0.5), ("int8", 0.4)])
def test_compact_caches(world: World, cache: str, share: float) -> None:
    """They take less memory, and models that have no cache are served beside."""
    writing = ["gpt", "transformer-xl"]
    paths = [world.model(name) for name in [*writing, "bert", "lstm"]]
    with running(paths) as server:
        plain = {name: server.models.models[name].facts.cache_bytes for name in writing}
    with running(paths, cache=cache) as server:
        for name in writing:
            assert server.models.models[name].facts.cache_bytes <= share * plain[name]
            ask = SHORT | {"model": name, "max_tokens": 20}
            text = server.post("/v1/completions", **ask)["choices"][0]["text"]
            loaded = load(world.model(name), cache=cache)
            assert text == loaded.generate([5, 6], max_new_tokens=20).text


def test_a_shutdown_finishes_what_was_accepted(world: World) -> None:
    """A process of its own, ended by a signal while it writes."""
    environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "regard", "serve", world.model("gpt"), "--port", "0",
               "--max-new-tokens", "100000"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        lines = []
        while "listening" not in (line := process.stderr.readline()):
            assert line, "the server ended"
            lines.append(line)
        assert any("MiB of weights" in each for each in lines)
        url = line.split()[2]
        body = {**LONG, "max_tokens": 3000, "stream": True, "min_tokens": 3000}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as one:
            incoming = one.iter_lines()
            next(incoming)
            process.send_signal(signal.SIGTERM)
            end = time.monotonic() + 20
            while httpx.get(f"{url}/ready").status_code != 503:
                assert time.monotonic() < end
                time.sleep(0.02)
            refusal(httpx.post(f"{url}/v1/completions", json=SHORT), 503, "shutting down")
            pieces = [each for each in incoming if each]
        assert pieces[-1] == "data: [DONE]"
        assert json.loads(pieces[-2].removeprefix("data: "))["choices"][0]["finish_reason"]
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"host": "0.0.0.0"}, ["0.0.0.0", "--api-key", "REGARD_API_KEY"]),
    ({"host": "example.org"}, ["example.org"]),
    ({"port": 99999}, ["port", "65535"]),
    ({"rows": 0}, ["rows"]),
    ({"deadline": 0.0}, ["deadline"]),
    ({"api_key": " "}, ["empty"]),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_options_that_cannot_be(case: int) -> None:
    options, parts = REFUSED[case]
    with refuses(ConfigError, *parts):
        ServeOptions(**options)


def test_hosts_and_names(tmp_path: Path) -> None:
    assert ServeOptions(host="0.0.0.0", api_key="k").api_key == "k"
    assert ServeOptions(host="::1").host == "::1"
    assert named(["/a/gpt", "small=/b/gpt"]) == {"gpt": "/a/gpt", "small": "/b/gpt"}
    assert named(["hub:a/b", "."]) == {"b": "hub:a/b", Path.cwd().name: "."}
    link = tmp_path / "mini"
    link.symlink_to(tmp_path, target_is_directory=True)
    assert named([str(link)]) == {"mini": str(link)}  # the name that the user sees
    with refuses(ConfigError, "/a/gpt", "/b/gpt"):
        named(["/a/gpt", "/b/gpt"])
