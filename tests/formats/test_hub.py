"""Models go to the hub and come back: the real client, and a stand-in for the hub on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import main
from regard.core.errors import FormatError, InputError
from regard.formats.hub import check_content, push
from tests.decoding.small import talking
from tests.formats.hub_server import TOKEN, Hub, serving
from tests.refusals import refuses

pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, with what a run has beside it."""
    path = tmp_path_factory.mktemp("hub") / "my-gpt"
    talking("bytes-bpe").save(path)
    (path / "README.md").write_text("---\nlibrary_name: regard\n---\n# my-gpt\n")
    (path / "recipe.toml").write_text('data = "/home/me/diary"\n')
    (path / "metrics.jsonl").write_text('{"step": 1}\n')
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "optimizer.safetensors").write_bytes(b"12345")
    return path


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


def client(hub: Hub, home: Path, *words: str, code: str = "", token: str = TOKEN) -> Any:
    """Runs a command, or Python, in a process of its own: the client reads its variables once."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1", "no_proxy": "127.0.0.1"}  # fmt: skip
    env |= {"HF_TOKEN": token} if token else {}
    call = ["-c", code, *words] if code else ["-m", "regard", *words]
    return subprocess.run([sys.executable, *call], env=env, capture_output=True, text=True)


LOAD = """
import sys, warnings, regard
name, revision = sys.argv[1:3]
loaded = regard.load(name, download=True, revision=revision or None)
print(loaded.path.name, sum(p.double().abs().sum().item() for p in loaded.model.parameters()))
"""


def test_a_dry_run_shows_what_would_go_and_sends_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # it is not even needed
    assert main(["push", str(run), "me/my-gpt", "--dry-run", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    names = {row["file"] for row in result["files"]}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"recipe.toml", "metrics.jsonl", "checkpoints/optimizer.safetensors"}
    assert result["bytes"] == sum((run / name).stat().st_size for name in names)
    assert main(["push", str(run), "me/my-gpt", "--dry-run", "--include", "checkpoints/**"]) == 0
    shown = capsys.readouterr().out
    assert "checkpoints/optimizer.safetensors" in shown
    assert "nothing was sent" in shown and "recipe.toml" not in shown


def test_a_model_goes_to_the_hub_and_comes_back(run: Path, hub: Hub, tmp_path: Path) -> None:
    sent = client(hub, tmp_path / "sender", "push", str(run), "me/my-gpt", "--json")
    assert sent.returncode == 0, sent.stderr
    result = json.loads(sent.stdout)
    repository = hub.repositories["me/my-gpt"]
    tree = repository.commits[result["commit"]]
    assert set(tree) == {row["file"] for row in result["files"]}
    assert all(content == (run / name).read_bytes() for name, content in tree.items())
    assert repository.private
    loaded = regard.load(run)
    total = sum(p.double().abs().sum().item() for p in loaded.model.parameters())
    fetched = client(hub, tmp_path / "reader", "me/my-gpt", "", code=LOAD)
    assert fetched.returncode == 0, fetched.stderr
    commit, value = fetched.stdout.split()
    assert (commit, float(value)) == (result["commit"], pytest.approx(total, rel=1e-12))
    # what is on this machine now needs no hub
    before = len(hub.requests)
    offline = client(hub, tmp_path / "reader", "info", "me/my-gpt", "--json")
    assert offline.returncode == 0, offline.stderr
    assert len(hub.requests) == before


@pytest.mark.slow
def test_a_revision_is_pinned(run: Path, hub: Hub, tmp_path: Path) -> None:
    first = json.loads(client(hub, tmp_path, "push", str(run), "me/my-gpt", "--json").stdout)
    other = tmp_path / "other"
    talking("bytes-bpe", seed=1).save(other)
    words = ["push", str(other), "me/my-gpt", "--json"]
    second = json.loads(client(hub, tmp_path, *words).stdout)
    assert first["commit"] != second["commit"]
    values = {}
    for revision in (first["commit"], ""):
        done = client(hub, tmp_path / "reader", "me/my-gpt", revision, code=LOAD)
        assert done.returncode == 0, done.stderr
        commit, values[revision] = done.stdout.split()
        assert commit == (revision or second["commit"])
    assert values[first["commit"]] != values[""]
    words = ["info", f"me/my-gpt@{first['commit']}", "--json"]
    assert client(hub, tmp_path / "reader", *words).returncode == 0
    nowhere = client(hub, tmp_path / "reader", "me/my-gpt", "v9", code=LOAD)
    assert nowhere.returncode != 0 and "v9" in nowhere.stderr
    branch = client(hub, tmp_path, "push", str(run), "me/my-gpt", "--revision", "old")
    assert branch.returncode == 0, branch.stderr
    assert set(hub.repositories["me/my-gpt"].branches) == {"main", "old"}


@pytest.mark.slow
def test_damaged_content_is_refused(run: Path, hub: Hub, tmp_path: Path) -> None:
    assert client(hub, tmp_path, "push", str(run), "me/my-gpt").returncode == 0
    hub.damage = "model.safetensors"
    done = client(hub, tmp_path / "reader", "me/my-gpt", "", code=LOAD)
    assert done.returncode != 0
    assert "model.safetensors" in done.stderr and "hash" in done.stderr


@pytest.mark.slow
def test_without_a_token_nothing_is_sent(run: Path, hub: Hub, tmp_path: Path) -> None:
    done = client(hub, tmp_path, "push", str(run), "me/my-gpt", token="wrong")
    assert done.returncode == 2
    assert "was not sent" in done.stderr and "HF_TOKEN" in done.stderr
    assert "wrong" not in done.stderr
    assert hub.repositories == {} and hub.objects == {}


def test_refusals(run: Path, tmp_path: Path) -> None:
    with refuses(InputError, "a/b/c"):
        push(run, "a/b/c", dry_run=True)
    with refuses(InputError, "nowhere"):
        push(tmp_path / "nowhere", "me/x", dry_run=True)
    with refuses(InputError, "--include", "out of"):
        push(run, "me/x", dry_run=True, include=["../*"])
    with refuses(InputError, "--include", "no file"):
        push(run, "me/x", dry_run=True, include=["*.pt"])
    with refuses(FormatError, "revision"):
        regard.load(run, revision="main")
    with refuses(InputError, "v1", "v2"):
        regard.load("me/my-gpt@v1", revision="v2")
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    with refuses(FormatError, "model.safetensors"):
        push(tmp_path, "me/x", dry_run=True)


def test_content_is_known_by_its_name(tmp_path: Path) -> None:
    """As in the client's cache: git's hash for small files, SHA-256 for large ones."""
    blob = tmp_path / "blobs" / "ce013625030ba8dba906f756967f9e9ca394464a"  # git's of "hello\n"
    blob.parent.mkdir()
    blob.write_bytes(b"hello\n")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "config.json").symlink_to(blob)
    check_content(tmp_path / "snapshot")
    blob.write_bytes(b"hullo\n")
    with refuses(FormatError, "config.json", "hash"):
        check_content(tmp_path / "snapshot")
