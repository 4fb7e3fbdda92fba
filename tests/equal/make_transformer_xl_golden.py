"""Makes the golden files of Transformer-XL with transformers 4.35, the last line that computes it.

    make golden                                   writes golden/transformer_xl/<case>/
    make_transformer_xl_golden.py --check A B     does the model directory B give case A's numbers?

A case is a model directory as that library writes it, and `expected.safetensors`: for each of four
segments that follow one another the tokens, log-probabilities, hidden states and attention weights
of all layers, the memory afterwards and the mean loss. The memory starts as that library starts it,
with zeros.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

warnings.filterwarnings("ignore")

from transformers import TransfoXLConfig, TransfoXLLMHeadModel, logging  # noqa: E402

logging.set_verbosity_error()

GOLDEN = Path(__file__).parent / "golden" / "transformer_xl"
VOCABULARY, BATCH, SEGMENTS = 61, 2, (5, 7, 4, 6)
SMALL = {
    "vocab_size": VOCABULARY,
    "cutoffs": [],
    "div_val": 1,
    "d_model": 16,
    "d_embed": 16,
    "n_head": 2,
    "d_head": 6,
    "d_inner": 24,
    "n_layer": 2,
    "mem_len": 6,
    "same_length": False,
    "clamp_len": -1,
    "untie_r": False,
    "dropout": 0.0,
    "dropatt": 0.0,
}
CLUSTERS = {"cutoffs": [11, 20, 45]}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain_long_memory": {"mem_len": 30, "same_length": True, "clamp_len": 9, "untie_r": True},
    "plain_no_memory": {"mem_len": 0, "n_layer": 3},
    "plain_projected": {"d_embed": 20, "pre_lnorm": True, "clamp_len": 4},
    "clusters": CLUSTERS | {"same_length": True, "untie_r": True},
    "clusters_projected": CLUSTERS | {"d_embed": 24, "same_length": True, "mem_len": 3},
    "clusters_projected_apart": CLUSTERS
    | {"d_embed": 12, "proj_share_all_but_first": False, "untie_r": True},
    "narrower": CLUSTERS
    | {"div_val": 2, "same_length": True, "untie_r": True, "clamp_len": 5, "n_layer": 3},
    "narrower_apart": CLUSTERS
    | {"div_val": 2, "d_embed": 24, "proj_share_all_but_first": False, "pre_lnorm": True},
    "one_cluster_of_ratio_two": {"div_val": 2, "pre_lnorm": True, "untie_r": True},
}
GRADIENTS = ("plain", "narrower")
CONSTANTS = {"transformer.pos_emb.inv_freq"}  # computed again whether or not a file holds them


def scrambled(config: TransfoXLConfig, seed: int) -> TransfoXLLMHeadModel:
    """Matrices ~ N(0, 0.2), vectors moved by as much: zeros and ones would hide errors."""
    generator = torch.manual_seed(seed)
    model = TransfoXLLMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.2
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    return model.eval()


def run(model: TransfoXLLMHeadModel, segments: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """All that is worth comparing, and the sum of the losses with its graph."""
    tensors: dict[str, Tensor] = {}
    memory, total = None, torch.zeros(())
    for i, tokens in enumerate(segments):
        loss = model(tokens, mems=memory, labels=tokens.clone()).loss
        total = total + loss
        result = model(tokens, mems=memory, output_hidden_states=True, output_attentions=True)
        memory = result.mems
        tensors[f"loss.{i}"] = loss
        tensors[f"log_probs.{i}"] = result.prediction_scores
        tensors |= {f"hidden.{i}.{j}": hidden for j, hidden in enumerate(result.hidden_states)}
        tensors |= {f"weights.{i}.{j}": weights for j, weights in enumerate(result.attentions)}
        tensors |= {f"memory.{i}.{j}": m.transpose(0, 1) for j, m in enumerate(memory or ())}
    return {name: value.detach().contiguous() for name, value in tensors.items()}, total


def make(case: str, seed: int) -> None:
    directory = GOLDEN / case
    shutil.rmtree(directory, ignore_errors=True)
    model = scrambled(TransfoXLConfig(**SMALL | CASES[case]), seed)
    model.save_pretrained(directory, safe_serialization=True)
    (directory / "generation_config.json").unlink(missing_ok=True)
    generator = torch.Generator().manual_seed(seed)
    segments = [torch.randint(VOCABULARY, (BATCH, n), generator=generator) for n in SEGMENTS]
    expected, loss = run(model, segments)
    if case in GRADIENTS:
        loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                expected[f"gradient.{name}"] = parameter.grad
    expected |= {f"tokens.{i}": tokens for i, tokens in enumerate(segments)}
    save_file(expected, directory / "expected.safetensors")


def check(case: Path, directory: Path) -> str | None:
    """What is wrong with a model directory that should give the numbers of a case."""
    expected = load_file(case / "expected.safetensors")
    model, report = TransfoXLLMHeadModel.from_pretrained(directory, output_loading_info=True)
    report["missing_keys"] = [k for k in report["missing_keys"] if k not in CONSTANTS]
    if any(report.values()):
        return f"{case.name}: {report}"
    segments = [expected[f"tokens.{i}"] for i in range(len(SEGMENTS))]
    tensors, _ = run(model.eval(), segments)
    for name, value in tensors.items():
        if not torch.allclose(value, expected[name], rtol=1e-6, atol=1e-6):
            return f"{case.name}: {name} differs by {float((value - expected[name]).abs().max())}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", nargs=2, type=Path, metavar=("CASE", "MODEL"), action="append")
    arguments = parser.parse_args()
    if arguments.check:
        wrong = [problem for pair in arguments.check if (problem := check(*pair))]
        sys.exit("\n".join(wrong) or 0)
    for seed, case in enumerate(CASES):
        make(case, seed)


if __name__ == "__main__":
    main()
