"""A stand-in for the Hugging Face Hub on this machine: as much of its protocol as the real client
uses to make a repository, to send a commit (small files in it, large ones by LFS) and to fetch one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "stand-in-token"
Tree = dict[str, bytes]


@dataclass
class Repository:
    private: bool
    commits: dict[str, Tree] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit("main", {})

    def commit(self, branch: str, tree: Tree) -> str:
        number = f"{len(self.commits)} {branch}".encode()
        name = hashlib.sha1(number, usedforsecurity=False).hexdigest()
        self.commits[name] = tree
        self.branches[branch] = name
        return name

    def find(self, revision: str) -> str | None:
        name = self.branches.get(revision, revision)
        return name if name in self.commits else None


@dataclass
class Hub:
    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)  # of LFS, by their SHA-256
    requests: list[str] = field(default_factory=list)
    damage: str = ""  # the name of a file that is sent with another content of the same size


def is_large(name: str) -> bool:
    return name.endswith(".safetensors")


def etag(name: str, content: bytes) -> str:
    if is_large(name):
        return hashlib.sha256(content).hexdigest()
    head = f"blob {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None: ...

    def body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, content: Any = b"", **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self) -> None:
        self.handle_request()

    do_POST = do_PUT = do_HEAD = do_GET

    def handle_request(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self.body()
        self.hub.requests.append(f"{self.command} {path}")
        for pattern, handler in ROUTES:
            match = re.fullmatch(pattern, path)
            if match:
                handler(self, body, *match.groups())
                return
        self.answer(404, {"error": path}, X_Error_Code="EntryNotFound")

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self.answer(401, {"error": "Invalid username or password."})
        return False

    # -- sending

    def create(self, body: bytes) -> None:
        if not self.allowed():
            return
        wanted = json.loads(body)
        name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        url = f"{self.hub.address}/{name}"
        known = name in self.hub.repositories
        if not known:
            private = wanted.get("private") or wanted.get("visibility") == "private"
            self.hub.repositories[name] = Repository(bool(private))
        self.answer(
            409 if known else 200, {"url": url, "name": name, "error": "You already created it"}
        )

    def branch(self, body: bytes, name: str, branch: str) -> None:
        if self.allowed():
            repository = self.hub.repositories[name]
            known = branch in repository.branches
            if not known:
                repository.branches[branch] = repository.branches["main"]
            self.answer(409 if known else 200, {"error": "Reference already exists"})

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        if self.allowed():
            files = [
                {"path": one["path"], "uploadMode": "lfs" if is_large(one["path"]) else "regular",
                 "shouldIgnore": False, "oid": None}
                for one in json.loads(body)["files"]
            ]  # fmt: skip
            self.answer(200, {"files": files})

    def batch(self, body: bytes, name: str) -> None:
        if self.allowed():
            objects = [
                one | {"actions": {"upload": {"href": f"{self.hub.address}/objects/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self.answer(200, {"transfer": "basic", "objects": objects})

    def upload(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self.answer(200)

    def commit(self, body: bytes, name: str, revision: str) -> None:
        if not self.allowed():
            return
        repository = self.hub.repositories[name]
        tree = dict(repository.commits[repository.branches[revision]])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                tree[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                tree[value["path"]] = self.hub.objects[value["oid"]]
        oid = repository.commit(revision, tree)
        url = f"{self.hub.address}/{name}/commit/{oid}"
        self.answer(200, {"commitUrl": url, "commitOid": oid, "hookOutput": "", "success": True})

    # -- fetching

    def found(self, name: str, revision: str) -> tuple[str, Tree] | None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.headers.get("Authorization")):
            self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        commit = repository.find(revision)
        if commit is None:
            self.answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return None
        return commit, repository.commits[commit]

    def about(self, body: bytes, name: str, revision: str | None = None) -> None:
        if (known := self.found(name, revision or "main")) is not None:
            commit, tree = known
            siblings = [{"rfilename": file} for file in sorted(tree)]
            private = self.hub.repositories[name].private
            self.answer(200, {"id": name, "modelId": name, "sha": commit, "siblings": siblings,
                              "private": private, "tags": [], "downloads": 0})  # fmt: skip

    def tree(self, body: bytes, name: str, revision: str) -> None:
        if (known := self.found(name, revision)) is not None:
            rows = [
                {"type": "file", "path": file, "size": len(content), "oid": etag(file, content)}
                | ({"lfs": {"oid": etag(file, content), "size": len(content), "pointerSize": 1}}
                   if is_large(file) else {})
                for file, content in sorted(known[1].items())
            ]  # fmt: skip
            self.answer(200, rows)

    def resolve(self, body: bytes, name: str, revision: str, file: str) -> None:
        if (known := self.found(name, revision)) is None:
            return
        commit, tree = known
        if file not in tree:
            self.answer(404, {"error": file}, X_Error_Code="EntryNotFound")
            return
        content = tree[file]
        tag = etag(file, content)
        if file == self.hub.damage:
            content = bytes([content[0] ^ 1]) + content[1:]
        linked = {"X_Linked_Etag": f'"{tag}"', "X_Linked_Size": str(len(content))}
        self.answer(200, content, ETag=f'"{tag}"', X_Repo_Commit=commit, **linked)

    def validated(self, body: bytes) -> None:
        self.answer(200, {"errors": [], "warnings": []})


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = [
    (r"/api/repos/create", Handler.create),
    (r"/api/validate-yaml", Handler.validated),
    (rf"/api/models/{NAME}/branch/(.+)", Handler.branch),
    (rf"/api/models/{NAME}/preupload/(.+)", Handler.preupload),
    (rf"/{NAME}\.git/info/lfs/objects/batch", Handler.batch),
    (r"/objects/(\w+)", Handler.upload),
    (rf"/api/models/{NAME}/commit/(.+)", Handler.commit),
    (rf"/api/models/{NAME}/revision/(.+)", Handler.about),
    (rf"/api/models/{NAME}/tree/([^/]+)/?", Handler.tree),
    (rf"/api/models/{NAME}", Handler.about),
    (rf"/{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
]


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    handler = type("StandIn", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
