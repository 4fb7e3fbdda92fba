"""The Hugging Face Hub: fetches a model by its name, and sends one when it is told to.

Everything is done by huggingface_hub, so its variables count here, too (HF_ENDPOINT, HF_TOKEN).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import FormatError, InputError
from regard.data.tokenizer import FILES as TOKENIZER_FILES
from regard.formats.registry import read_config

# What a directory needs to be opened, and its card. Everything else stays here unless it is asked
# for: the recipe and the metrics name files of this machine, and checkpoints are large.
SENT = (
    "README.md", "config.json", "generation_config.json", "task.json", "*.safetensors",
    "*.safetensors.index.json", *TOKENIZER_FILES,
)  # fmt: skip
NEVER = ("*.lock", ".*")
SKIPPED = ["*.bin", "*.h5", "*.msgpack", "*.ot", "*.py"]  # never fetched
NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+")
CONTENT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # the name of a file in the hub's cache


def fetched(name: str, download: bool, revision: str | None = None) -> Path:
    """Returns the directory of a name of the hub; NAME@REVISION pins a commit, a tag or a branch.

    What is downloaded must have the hash by which the hub knows it.
    """
    text, at, pinned = name.removeprefix("hub:").partition("@")
    if at and revision is not None and pinned != revision:
        raise InputError(f"{name} names a revision, and revision is {revision!r}; give one of them")
    revision = revision or pinned or None
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise FormatError(
            f"there is no directory {name}; to use a name of the hub, install regard[hub]"
        ) from None
    try:
        snapshot = snapshot_download(
            text, revision=revision, local_files_only=not download, ignore_patterns=SKIPPED
        )
    except Exception as error:
        advice = "is it spelled as on the hub, and is this machine connected?"
        if not download:
            advice = "--download, or download=True in Python, downloads a name of the hub"
        where = f" at revision {revision}" if revision else ""
        raise FormatError(
            f"there is no directory {text}, and no model of the hub with this name{where} is on "
            f"this machine; {advice}"
        ) from error
    if download:
        check_content(Path(snapshot))
    return Path(snapshot)


def check_content(snapshot: Path) -> None:
    """Refuses files whose content is not what the hub says: its cache names each by its hash, which
    is git's for small files and SHA-256 for large ones."""
    for file in sorted(snapshot.rglob("*")):
        blob = file.resolve()
        if file.is_file() and CONTENT.fullmatch(blob.name) and hash_of(blob) != blob.name:
            raise FormatError(
                f"{file.name} of {snapshot} is damaged: its content has another hash than the hub "
                f"says; delete {blob} and download it again"
            )


def hash_of(file: Path) -> str:
    digest = hashlib.sha256()
    if len(file.name) == 40:
        digest = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    with file.open("rb") as content:
        while part := content.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def files_to_send(run: Path, include: Sequence[str] = ()) -> list[Path]:
    """Returns the files of a model directory that a push sends, by their paths inside it."""
    read_config(run)  # refuses what is no model
    files: set[Path] = set()
    for pattern in (*SENT, *include):
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise InputError(f"--include {pattern} leads out of {run}; name files inside of it")
        inside = f"{pattern}/*" if pattern.endswith("**") else pattern  # ** alone means directories
        matched = {file.relative_to(run) for file in run.glob(inside) if file.is_file()}
        if pattern in include and not matched:
            raise InputError(f"--include {pattern} matches no file of {run}")
        files |= matched
    files = {file for file in files if not any(file.match(pattern) for pattern in NEVER)}
    if not any(file.suffix == ".safetensors" for file in files):
        raise FormatError(
            f"{run} holds no model.safetensors; finish the run, or convert older weights: regard "
            f"convert {run}"
        )
    return sorted(files)


def push(
    run: Path,
    name: str,
    *,
    dry_run: bool = False,
    public: bool = False,
    include: Sequence[str] = (),
    revision: str | None = None,
    message: str = "",
) -> dict[str, Any]:
    """Sends a model directory to the hub as one commit; with `dry_run` it only says what would
    go."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of the hub; give one such as me/my-gpt")
    if not run.is_dir():
        raise InputError(f"there is no directory {run}; give a run or a model directory")
    files = files_to_send(run, include)
    result: dict[str, Any] = {
        "run": str(run),
        "name": name,
        "revision": revision or "main",
        "files": [{"file": str(file), "bytes": (run / file).stat().st_size} for file in files],
        "bytes": sum((run / file).stat().st_size for file in files),
        "notes": list(notes(run, files)),
        "dry_run": dry_run,
    }
    if dry_run:
        return result
    try:
        import huggingface_hub as hub
    except ImportError:
        raise InputError("a push needs huggingface_hub; install regard[hub]") from None
    api = hub.HfApi()
    operations = [
        hub.CommitOperationAdd(path_in_repo=file.as_posix(), path_or_fileobj=run / file)
        for file in files
    ]
    try:
        place = api.create_repo(name, private=not public, exist_ok=True)
        if revision is not None:
            api.create_branch(place.repo_id, branch=revision, exist_ok=True)
        commit = api.create_commit(
            place.repo_id, operations, revision=revision,
            commit_message=message or f"A model from {run.name}",
        )  # fmt: skip
    except Exception as error:  # the library raises errors of many kinds
        raise InputError(
            f"{name} was not sent: {error}; is this machine logged in (hf auth login, or HF_TOKEN) "
            "and may it write there?"
        ) from error
    return result | {"name": place.repo_id, "commit": commit.oid, "url": str(commit.commit_url)}


def notes(run: Path, files: Sequence[Path]) -> Iterator[str]:
    if Path("README.md") not in files:
        yield f"{run} has no card (README.md), so that the page of the model will be empty"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        yield "HF_HUB_OFFLINE is set: nothing can be sent"
