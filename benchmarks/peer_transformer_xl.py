"""Transformer-XL of transformers 4.35.2, one step for each line on standard input. Started by
other_process.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import TransfoXLLMHeadModel


def main() -> None:
    directory, kind, precision = sys.argv[1:]
    model = TransfoXLLMHeadModel.from_pretrained(directory)
    batch = load_file(Path(directory) / "batch.safetensors")
    tokens = batch["tokens"]  # its loss shifts by itself
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    model.train(kind == "train")
    print("ready", flush=True)
    for _ in sys.stdin:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            if kind == "train":
                loss = model(tokens, labels=tokens).losses.mean()
            else:
                with torch.no_grad():
                    model.transformer(batch["tokens"])
        if kind == "train":
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        print("done", flush=True)


if __name__ == "__main__":
    main()
