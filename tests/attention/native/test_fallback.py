"""Without native code, or with that of an older processor, everything comes out the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.attention.native import LEVELS, library
from regard.attention.native.decode import step_kernel  # noqa: F401 (the other process asks it)

ROOT = Path(__file__).resolve().parents[3]
# The tests of what native code computes elsewhere: here plain torch has to pass them.
EQUALITY = ("tests/attention/test_norms.py", "tests/attention/test_kernels.py",
            "tests/attention/test_linear.py", "tests/models/test_output.py",
            "tests/models/extensions/test_int8.py")  # fmt: skip
LIMIT = 2e-4  # of hidden states and gradients, as a share of their deviation


def results() -> dict[str, Tensor]:
    """Greedy texts of three families, an encoder's rows without padding, and a step's gradients."""
    from regard.api import LoadedModel
    from regard.decoding import generate
    from regard.models import create
    from regard.models.packed import packed

    small = {"width": 48, "layers": 2, "heads": 4, "vocab_size": 90}
    sizes = {"ffn_size": 96, "head_size": 12}
    names = {"gpt2": {}, "t5-small": sizes, "transformer-xl-enwik8-base": sizes | {"mem_len": 9}}
    outcome: dict[str, Tensor] = {}
    for name, more in names.items():
        torch.manual_seed(1)
        model = create(name, **small, **more).initialize().eval()
        for value in model.parameters():
            nn.init.normal_(value, std=0.3) if value.dim() > 1 else None
        texts = generate(LoadedModel(model), [[5, 9, 2], [7]], max_new_tokens=20, eos_ids=[])
        outcome[name] = torch.tensor([samples[0].ids for samples in texts])
    torch.manual_seed(1)
    bert = create("bert-base-uncased", **small, ffn_size=96).initialize().eval()
    tokens = torch.randint(5, 90, (3, 40))
    mask = torch.arange(40) < torch.tensor([[40], [3], [17]])
    with torch.no_grad():
        read = bert(tokens, attention_mask=mask)
        if library() is not None:
            read = packed(bert, "fp32")(tokens, mask)
    outcome["bert"] = read * mask[..., None]
    model = create("gpt2", **small).initialize().eval()
    loss = model.output.surprisal(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    outcome |= {
        f"gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None
    }
    return {name: value.detach().contiguous() for name, value in outcome.items()}


def elsewhere(level: str, place: Path) -> tuple[dict[str, Tensor], str]:
    """Computes the results in a process with this REGARD_NATIVE; returns what it said, too."""
    code = "from safetensors.torch import save_file; "
    code += "from tests.attention.native.test_fallback import *; "
    code += "print(library() is not None, step_kernel() is not None)"
    code += f"; save_file(results(), {str(place)!r})"
    env = os.environ | {"REGARD_NATIVE": level, "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return load_file(place), done.stdout + done.stderr


def processor_has(level: str) -> bool:
    """Whether this processor can run what is compiled for the level."""
    facts = Path("/proc/cpuinfo")
    flags = facts.read_text().split() if facts.exists() else []
    return {"0": True, "avx2": "avx2" in flags, "avx512": "avx512bw" in flags}[level]


@pytest.mark.slow
@pytest.mark.skipif(library() is None, reason="there is no native code here")
@pytest.mark.parametrize("level", ["0", *LEVELS])
def test_what_is_computed_is_the_same(level: str, tmp_path: Path) -> None:
    if not processor_has(level):
        pytest.skip(f"this processor has no {level}")
    expected, (actual, words) = results(), elsewhere(level, tmp_path / "results.safetensors")
    assert words.startswith("False False" if level == "0" else "True False"), words
    assert words.count("AVX512-VNNI") == (level != "0"), words  # it is said once
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if value.is_floating_point():
            assert (actual[name] - value).abs().max() <= LIMIT * value.std(), name
        else:
            assert torch.equal(actual[name], value), name


@pytest.mark.slow
def test_the_tests_of_equality_pass_in_plain_torch() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *EQUALITY]
    env = os.environ | {"REGARD_NATIVE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]
