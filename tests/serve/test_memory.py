"""The memory that a server prints at its start is enough for all that it then does."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from regard.core.seeding import seed_torch
from regard.formats.directory import save
from regard.models.gpt import GPT, GPTConfig
from regard.models.xlnet import XLNet, XLNetConfig
from regard.serve.memory import cache_bytes
from regard.serve.options import ServeOptions
from tests.tasks import tuning

CONTEXT, NEW = 512, 320
SHAPE: dict[str, Any] = {"vocab_size": len(tuning.WORDS), "width": 256, "layers": 4, "heads": 4,
                         "ffn_size": 1024, "dropout": 0.0}  # fmt: skip
OPTIONS = ["--port", "0", "--rows", "16", "--max-new-tokens", str(NEW), "--max-body", "20000",
           "--max-input-tokens", str(CONTEXT), "--threads", "1", "--queue", "64",
           "--deadline", "600"]  # fmt: skip
MODELS = {
    "gpt": lambda: GPT(GPTConfig(**SHAPE, context=CONTEXT)),
    "xlnet": lambda: XLNet(XLNetConfig(**SHAPE | {"width": 128, "ffn_size": 256}, head_size=32)),
}
SPENT = {"gpt": 0.3, "xlnet": 0.1}  # the least share of the bound that the load makes use of


def memory(process: int, line: str) -> int:
    """The bytes of a line of a process's status: VmRSS now, VmHWM at most so far."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(re.search(rf"{line}:\s+(\d+) kB", status).group(1))  # type: ignore[union-attr]


def printed(lines: list[str], pattern: str) -> int:
    (number,) = re.findall(pattern, "".join(lines))
    return int(number.replace(",", "")) * 2**20


def load(url: str, name: str, count: int) -> None:
    """Prompts of all lengths, which overlap from the first to the last."""
    dice = random.Random(3)
    bodies = [
        {"model": name, "prompt": [5 + dice.randrange(20) for _ in range(dice.randint(1, 180))],
         "max_tokens": NEW, "min_tokens": dice.randint(NEW // 3, NEW), "seed": number,
         "temperature": 1.0, "logprobs": 5}
        for number in range(count)
    ]  # fmt: skip

    def ask(body: dict[str, Any]) -> int:
        return httpx.post(f"{url}/v1/completions", json=body, timeout=300).status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(ask, bodies)) == {200}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("name", MODELS)
def test_memory_under_load_is_what_was_printed(name: str, tmp_path: Path) -> None:
    """The peak of a process of its own, against its memory before the first request."""
    seed_torch(1)
    save(MODELS[name]().initialize(), tmp_path / name, tuning.tokenizer())
    environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "regard", "serve", str(tmp_path / name), *OPTIONS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or "listening" not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], "the server ended"
        most = printed(lines, r"at most about ([\d,]+) MiB")
        weights = printed(lines, r"([\d,]+) MiB of weights")
        texts = printed(lines, r"up to ([\d,]+) MiB for texts")
        url = lines[-1].split()[2]
        before = memory(process.pid, "VmRSS")
        load(url, name, 32)
        grown = memory(process.pid, "VmHWM") - before
        assert grown <= most - weights
        assert grown >= SPENT[name] * texts, "the load is too small to show anything"
    finally:
        process.kill()
        process.wait()


def test_the_bound_follows_the_options() -> None:
    """Each row takes as much as every other."""
    for make in MODELS.values():
        model = make().eval()
        few, more, most = (
            cache_bytes(model, ServeOptions(rows=rows, max_new_tokens=NEW)) for rows in (4, 5, 6)
        )
        assert most - more == more - few > 0
