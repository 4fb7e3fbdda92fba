"""A peer in another interpreter: on request it takes one step, and reports the memory it took."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from regard.formats.directory import save

# The allocator of `regard.training.hardware.quick_malloc`, as glibc reads it when a process starts.
KEEP = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**62),
    "MALLOC_TOP_PAD_": str(2**26),
}


class OtherProcess:
    """A callable step. The other process waits while we work, so the two never run at once."""

    def __init__(self, python: str, model: Any, kind: str, dtype: torch.dtype, case: Any) -> None:
        self.directory = tempfile.TemporaryDirectory()
        save(model, self.directory.name)
        save_file(case.inputs(), Path(self.directory.name) / "batch.safetensors")
        script = Path(__file__).parent / "peer_transformer_xl.py"
        precision = "bf16" if dtype == torch.bfloat16 else "fp32"
        self.process = subprocess.Popen(
            [python, str(script), self.directory.name, kind, precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | KEEP,
        )  # fmt: skip
        self.bytes = self.answer()

    def answer(self) -> int:
        """Returns the bytes that steps have added to the peak."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the peer cannot do this step, or is not transformers 4.35.2")
        return int(line)

    def __call__(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.bytes = self.answer()

    def ask(self, what: str) -> int:
        """Returns the "memory" (bytes) that steps added to the peak, as `Apart.ask` does."""
        assert what == "memory"
        return self.bytes

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.directory.cleanup()
