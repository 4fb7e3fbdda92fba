"""Runs Transformer-XL of transformers 4.35.2, one step for each line on standard input. It is
started by other_process.py, and answers with the bytes that its steps have added to the peak."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import TransfoXLLMHeadModel


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    directory, kind, precision = sys.argv[1:]
    model = TransfoXLLMHeadModel.from_pretrained(directory)
    batch = load_file(Path(directory) / "batch.safetensors")
    tokens = batch["tokens"]  # its loss shifts the labels itself
    if precision == "bf16":  # it does not run under autocast, so its weights are in bf16, too
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    model.train(kind == "train")
    before = resident()
    print(0, flush=True)
    for _ in sys.stdin:
        if kind == "forward":
            with torch.no_grad():
                model.transformer(tokens)
        else:
            model(tokens, labels=tokens).losses.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(peak() - before, flush=True)


if __name__ == "__main__":
    main()
