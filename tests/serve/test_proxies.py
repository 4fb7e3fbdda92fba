"""The configurations of docs/serving.md, run as they stand: nginx and Caddy pass a stream on, and
systemd reads the unit, kubectl the manifest. Each is skipped where its program is not installed.
The Dockerfile is compared with what the project installs."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import tomllib
from pathlib import Path

import httpx
import pytest
import yaml
from packaging.specifiers import SpecifierSet

from regard.core import VERSION
from regard.serve.options import ServeOptions
from tests.cli.test_options import EVERY
from tests.serve.running import Running

ROOT = Path(__file__).parents[2] / "docs"
PAGE = (ROOT / "serving.md").read_text(encoding="utf-8")
STREAM = {"model": "gpt", "prompt": "the film was", "max_tokens": 9, "temperature": 0,
          "stream": True}  # fmt: skip


def block(start: str, kind: str) -> str:
    """The code block of the page that begins with these words."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    texts: list[str] = [
        text for name, text in blocks if (name, True) == (kind, text.startswith(start))
    ]
    (text,) = texts
    return text


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def passes_on(command: list[str], port: int, served: Running) -> None:
    """Behind the proxy a stream is the text of Python, and a body over the limit is refused."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"{url}/health").json() == {"status": "ok"}
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.1)
        with httpx.stream("POST", f"{url}/v1/completions", json=STREAM, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
        direct = served.client.post("/v1/completions", json=STREAM).text.split("\n\n")
        assert len(lines) == len([line for line in direct if line.startswith("data: ")])
        large = httpx.post(f"{url}/v1/completions", content=b"a" * 2**21, timeout=60)
        assert large.status_code == 413
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx(served: Running, tmp_path: Path) -> None:
    port = free_port()
    location = block("location / {", "nginx").replace("http://127.0.0.1:8000", served.url)
    places = " ".join(
        f"{name}_temp_path {tmp_path}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error; events {{}}\n"
        f"http {{ access_log off; {places} server {{ listen 127.0.0.1:{port}; {location} }} }}\n"
    )
    passes_on(["nginx", "-c", str(file), "-e", f"{tmp_path}/error"], port, served)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed")
def test_caddy(served: Running, tmp_path: Path) -> None:
    port = free_port()
    site = block("models.example.org {", "").replace(
        "models.example.org", f"http://127.0.0.1:{port}"
    )
    file = tmp_path / "Caddyfile"
    file.write_text("{\n\tadmin off\n}\n" + site.replace("127.0.0.1:8000", served.url[7:]))
    command = ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]
    passes_on(command, port, served)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_of_systemd(tmp_path: Path) -> None:
    """Its program need not exist here."""
    program = shutil.which("true")
    text = re.sub(r"(?<=ExecStart=)\S+", str(program), block("[Unit]", "ini"))
    file = tmp_path / "regard.service"
    file.write_text(text.replace("User=regard", "User=root"))
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True
    )
    complaints = [line for line in answer.stderr.splitlines() if "regard.service" in line]
    assert complaints == []


def test_the_dockerfile() -> None:
    """It installs an extra that there is, for a Python that is supported, and starts a command that
    can be parsed as a user who is not root. No engine builds it here."""
    steps = [
        line.replace("\\\n", " ")
        for line in re.findall(r"(?:.*\\\n)*.+", block("FROM python", "dockerfile"))
    ]
    kinds = ("FROM", "RUN", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD")
    words = {
        kind: [step.partition(" ")[2] for step in steps if step.startswith(f"{kind} ")]
        for kind in kinds
    }
    assert sum(map(len, words.values())) == len(steps)
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (python,) = re.findall(r"^python:([\d.]+)-slim$", words["FROM"][0])
    assert python in SpecifierSet(project["requires-python"])
    install = next(s for s in words["RUN"] if "pip install" in s)
    (source, target), (place, extra) = words["COPY"][0].split(), re.findall(
        r'"(/\w+)\[(\w+)\]"', install)[0]  # fmt: skip
    assert (source, target) == (".", place) and extra in project["optional-dependencies"]
    assert f"useradd --create-home {words['USER'][0]}" in install
    assert any("install --yes" in s and "g++" in s for s in words["RUN"])  # for the kernels
    assert words["EXPOSE"] == [str(ServeOptions.port)]
    program, *arguments = json.loads(words["ENTRYPOINT"][0]) + json.loads(words["CMD"][0])
    assert program in project["scripts"]
    context = EVERY["serve"].make_context("serve", arguments[1:])
    assert (arguments[0], context.params["host"]) == ("serve", "0.0.0.0")


def test_the_manifest_of_kubernetes() -> None:
    """What belongs together has the same name and port, and the image is of this version."""
    deployment, service = yaml.safe_load_all(block("apiVersion: apps/v1", "yaml"))
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    (container,) = pod["spec"]["containers"]
    (port,) = [each["containerPort"] for each in container["ports"]]
    assert service["spec"]["ports"][0]["targetPort"] == port
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port
    version = ".".join(VERSION.split(".")[:2])
    assert container["image"].endswith(f":{version}")
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert grace > ServeOptions.grace + pause
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["spec"]["volumes"]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_knows_every_field(tmp_path: Path) -> None:
    """It reads objects into types and writes what these hold: an unknown field would be gone."""
    changes = {"Deployment": ["serviceaccount", "default"], "Service": ["selector", "app=regard"]}
    for wanted in yaml.safe_load_all(block("apiVersion: apps/v1", "yaml")):
        file = tmp_path / "object.yaml"
        file.write_text(yaml.safe_dump(wanted))
        command = ["kubectl", "set", changes[wanted["kind"]][0], "--local", "-f", str(file),
                   changes[wanted["kind"]][1], "-o", "yaml"]  # fmt: skip
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        assert holds(yaml.safe_load(answer.stdout), wanted)


def holds(whole: object, part: object) -> bool:
    """Whether every field of `part` is in `whole`, with the same value."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and holds(whole[name], part[name]) for name in part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return whole == part


def test_both_languages_show_the_same_files() -> None:
    chinese = (ROOT / "serving.zh.md").read_text(encoding="utf-8")
    pages = [re.sub(r" {2,}# .*", "", page) for page in (PAGE, chinese)]  # comments are translated
    shown = [re.findall(r"^```\w*\n.*?^```$", page, re.DOTALL | re.MULTILINE) for page in pages]
    assert shown[0] == shown[1] and len(shown[0]) > 6
