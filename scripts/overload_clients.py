"""The models, the requests and the clients of scripts/overload.py."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

WORDS = 500
LARGE = 800  # texts of an embedding whose answer is larger than the buffers of a connection
FINE = {"200", "400", "408", "429", "gone", "dropped"}
LOAD = {"200", "429", "gone"}  # of complete requests: a broken one is no work
VANISHING, BROKEN, ASKING = 0, 1, 2  # kinds of requests, of ten


class Work(NamedTuple):
    """A request and its right answer: a text, or numbers."""

    route: str
    body: dict[str, Any]
    right: Any


def models_in(place: Path) -> dict[str, Path]:
    """Saves a decoder and an encoder with random weights."""
    from tokenizers import Tokenizer as Fast
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    from regard.core.seeding import seed_torch
    from regard.data.tokenizer import Tokenizer
    from regard.formats.directory import save
    from regard.models.bert import Bert, BertConfig
    from regard.models.gpt import GPT, GPTConfig

    marks = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

    def tokenizer(roles: dict[str, str], unknown: str) -> Tokenizer:
        names = [*roles.values(), *(f"w{i}" for i in range(len(roles), WORDS))]
        fast = Fast(WordLevel({word: i for i, word in enumerate(names)}, unk_token=unknown))
        fast.pre_tokenizer = WhitespaceSplit()
        fast.add_special_tokens(list(roles.values()))
        config = {f"{role}_token": word for role, word in roles.items()}
        files = {"tokenizer.json": fast.to_str(), "tokenizer_config.json": json.dumps(config)}
        return Tokenizer(fast, {name: text.encode() for name, text in files.items()})

    shape: dict[str, Any] = {"vocab_size": WORDS, "context": 128, "width": 256, "layers": 4,
                             "heads": 4}  # fmt: skip
    seed_torch(0, "weights")
    gpt = GPT(GPTConfig(**shape)).initialize()
    bert = Bert(BertConfig(**shape, ffn_size=1024)).initialize()
    return {
        "gpt": save(gpt, place / "gpt", tokenizer({"eos": "<eos>"}, "w1")),
        "bert": save(bert, place / "bert", tokenizer(marks, "[UNK]")),
    }


def text(dice: random.Random, most: int) -> str:
    return " ".join(f"w{dice.randrange(5, WORDS)}" for _ in range(dice.randint(1, most)))


def work_for(models: dict[str, Path]) -> list[Work]:
    """Returns requests with the answers of the Python calls."""
    from regard.api import load

    gpt, bert = load(models["gpt"]), load(models["bert"])
    dice, work = random.Random(1), []
    for seed in range(24):
        prompt = text(dice, 40)
        new, temperature = dice.choice([16, 32, 64]), dice.choice([0.0, 1.0])
        right = gpt.generate(prompt, max_new_tokens=new, temperature=temperature, seed=seed).text
        body = {"prompt": prompt, "max_tokens": new, "temperature": temperature, "seed": seed}
        body |= {"model": "gpt", "stream": bool(seed % 2)}
        work.append(Work("/v1/completions", body, right))
    for _ in range(12):
        texts = [text(dice, 100) for _ in range(33)]
        vectors = bert.embed(texts)
        inputs = {"source_sentence": texts[0], "sentences": texts[1:]}
        scores = (vectors[1:] @ vectors[0]).tolist()
        work.append(Work("/similarity?model=bert", {"inputs": inputs}, scores))
    return work


def is_right(answer: Any, right: Any) -> bool:
    if isinstance(right, str):
        return bool(answer == right)
    return len(answer) == len(right) and all(
        abs(a - b) < 1e-4 for a, b in zip(answer, right, strict=True)
    )


def answer_of(port: int, work: Work, raw: bytes = b"") -> tuple[int, Any]:
    """Returns the status of an answer, and the text or the numbers that it holds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        body = raw or json.dumps(work.body).encode()
        connection.request("POST", work.route, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        whole = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        return answer.status, whole
    if not work.route.startswith("/v1"):
        return 200, json.loads(whole)
    lines = [line[6:] for line in whole.splitlines() if line.startswith("data: {")] or [whole]
    tables = [json.loads(line) for line in lines]
    if error := next((table["error"] for table in tables if "error" in table), None):
        return {"deadline_exceeded": 504}.get(error["code"], 500), whole
    return 200, "".join(choice["text"] for table in tables for choice in table["choices"])


# -- clients that are slow


def connected(port: int, path: str, size: int, small: bool = False) -> socket.socket:
    """Returns a connection on which the head of a request has been sent."""
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(120)
    client.connect(("127.0.0.1", port))
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {size}\r\n\r\n".encode())
    return client


def slow_sender(port: int, patience: float) -> str:
    """Sends a body byte by byte until the server has had enough of it."""
    end = time.monotonic() + 4 * patience
    with connected(port, "/v1/completions", 1000) as client:
        client.settimeout(patience / 10)
        while time.monotonic() < end:
            try:
                return client.recv(64).split()[1].decode()
            except TimeoutError:
                client.sendall(b" ")
    return "endured"


def slow_reader(port: int, patience: float) -> str:
    """Asks for a large answer and does not read it for longer than the server waits."""
    body = json.dumps({"model": "bert", "input": ["w7"] * LARGE}).encode()
    with connected(port, "/v1/embeddings", len(body), small=True) as client:
        client.sendall(body)
        if (status := client.recv(13).split()[1].decode()) != "200":
            return status
        time.sleep(1.5 * patience + 1)
        client.settimeout(patience)
        parts = [b""]
        try:
            while part := client.recv(2**16):
                parts.append(part)
        except (ConnectionError, TimeoutError):
            return "dropped"
    head, _, answer = b"".join(parts).partition(b"\r\n\r\n")
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    return "endured" if len(answer) == int(length.split()[1]) else "dropped"


# -- the crowd


class Clock:
    """The seconds in which this process was not suspended."""

    TICK, LONG = 0.2, 5.0

    def __init__(self) -> None:
        self.last, self.lost, self.lock = time.monotonic(), 0.0, threading.Lock()
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self) -> None:
        while True:
            time.sleep(self.TICK)
            self.now()

    def now(self) -> float:
        with self.lock:
            moment = time.monotonic()
            if moment - self.last > self.LONG:
                self.lost += moment - self.last
            self.last = moment
            return moment - self.lost


class Seen(NamedTuple):
    """When a request was sent and answered, and how."""

    sent: float
    ended: float
    status: str


class Crowd:
    """Clients of which each asks at a rate of its own, and what they have seen."""

    def __init__(
        self, port: int, work: list[Work], seconds: float, rate: float | None, clock: Clock
    ) -> None:
        self.port, self.work, self.rate = port, work, rate  # rate None: one after the other
        self.clock, self.end = clock, clock.now() + seconds
        self.wrong: list[Any] = []
        self.seen: list[Seen] = []  # appending is atomic

    def run(self, clients: int, slow: int = 0, patience: float = 0.0) -> None:
        """Lets `clients` ask, and `slow` send slowly, and as many read slowly."""
        threads = [threading.Thread(target=self.client, args=(n, clients)) for n in range(clients)]
        for kind in (slow_sender, slow_reader) * slow:
            threads.append(threading.Thread(target=self.slow, args=(kind, patience)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @property
    def statuses(self) -> Counter[str]:
        return Counter(one.status for one in self.seen)

    def slow(self, kind: Any, patience: float) -> None:
        while self.clock.now() < self.end:
            self.note(lambda: kind(self.port, patience))

    def client(self, number: int, clients: int) -> None:
        dice, due = random.Random(number), self.clock.now()
        while (now := self.clock.now()) < self.end:
            kind = ASKING
            if self.rate is not None:
                due += dice.expovariate(self.rate / clients)
                time.sleep(max(0.0, min(due, self.end) - now))
                kind = dice.randrange(10)
            work = dice.choice(self.work)
            status = self.note(lambda work=work, kind=kind: self.request(work, kind))
            if self.rate is None and status == "429":
                time.sleep(0.05)

    def note(self, request: Any) -> str:
        """Notes what becomes of a request."""
        sent, lost = time.monotonic(), self.clock.lost
        try:
            status = str(request())
        except ConnectionRefusedError:
            status = "refused"
        except (OSError, http.client.HTTPException, ValueError, IndexError) as error:
            status = f"connection: {type(error).__name__}"
        self.clock.now()
        if status not in FINE and self.clock.lost > lost:
            status = "suspended"
        self.seen.append(Seen(sent, time.monotonic(), status))
        return status

    def request(self, work: Work, kind: int) -> str:
        """Returns the status of what is asked."""
        if kind == VANISHING:
            body = json.dumps(work.body).encode()
            with connected(self.port, work.route, len(body)) as client:
                client.sendall(body)
            return "gone"
        if kind == BROKEN:
            return str(answer_of(self.port, work, json.dumps(work.body)[:-9].encode())[0])
        status, answer = answer_of(self.port, work)
        if status == 200 and not is_right(answer, work.right):
            self.wrong.append((work.body, answer, work.right))
        return str(status)
