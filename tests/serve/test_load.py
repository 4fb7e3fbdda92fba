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
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
            slow.settimeout(10)
            assert b" 408 " in slow.recv(4000)
        assert server.client.post("/v1/completions", json=SHORT).status_code == 200


def test_a_client_that_does_not_read(world: World) -> None:
    options: dict[str, Any] = {"patience": 0.5, "max_new_tokens": 100_000, "send_buffer": 4096}
    with running([world.model("gpt")], **options) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({**LONG, "stream": True, "logprobs": 20}).encode()
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
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


def test_hosts_and_names() -> None:
    assert ServeOptions(host="0.0.0.0", api_key="k").api_key == "k"
    assert ServeOptions(host="::1").host == "::1"
    assert named(["/a/gpt", "small=/b/gpt"]) == {"gpt": "/a/gpt", "small": "/b/gpt"}
    with refuses(ConfigError, "/a/gpt", "/b/gpt"):
        named(["/a/gpt", "/b/gpt"])
