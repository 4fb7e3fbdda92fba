"""What the machine can do, and estimates of what a run asks of it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.models import create
from regard.training import hardware as machine
from regard.training.hardware import (
    control_group,
    fast_bf16,
    gemm_peak,
    quick_malloc,
    step_flops,
    training_memory,
)

MEASURE = """
import json, sys, torch
from contextlib import nullcontext
from regard.models import create
from regard.training.hardware import memory, training_memory
from regard.training.optimizer import optimizer

torch.set_num_threads(1)
name, changes, batch, length, kind, precision = json.loads(sys.argv[1])
torch.ones(256, 256) @ torch.ones(256, 256)
before = memory()["resident"]
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
model = create(name, **changes)
made = optimizer(kind, model, lr=1e-3)
for _ in range(2):
    tokens = torch.randint(0, model.config.vocab_size, (batch, length))
    with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext():
        hidden = model(tokens, tokens) if hasattr(model, "decoder_blocks") else model(tokens)
        loss = model.output.surprisal(hidden.flatten(0, 1), tokens.flatten())
    loss.backward()
    made.step()
    made.zero_grad()
estimate = training_memory(model, batch, length, optimizer=kind, precision=precision)
print(json.dumps([memory()["peak"] - before, estimate]))
"""
BODY = {"width": 128, "heads": 4, "vocab_size": 4000}
CASES = {
    "much text": ["gpt2", BODY | {"layers": 3, "context": 128}, 24, 128, "adamw", "fp32"],
    "two stacks, bf16": [
        "transformer-base", BODY | {"layers": 2, "ffn_size": 512}, 16, 96, "bert-adam", "bf16",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("case", CASES)
def test_estimated_memory_is_within_a_factor_of_two(case):
    command = [sys.executable, "-c", MEASURE, json.dumps(CASES[case])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak, estimate = json.loads(done.stdout)
    assert 0.5 < estimate / peak < 2.0, (estimate, peak)


def test_what_makes_memory_grow_or_shrink():
    model = create("gpt2", width=64, layers=4, heads=2, vocab_size=500, context=256)

    def need(**changes):
        settings = {"optimizer": "adamw", "precision": "fp32"} | changes
        return training_memory(model, changes.pop("batch", 8), 256, **settings)

    assert need(checkpointing=True) < 0.75 * need()
    assert need(precision="bf16") < need() < need(precision="fp64")
    assert need(optimizer="adafactor") < need()
    assert need(targets=8) < need()
    weights = 4 * model.parameter_count()
    assert need() - need(optimizer="sgd") == 2 * weights


def counted(run) -> int:
    with FlopCounterMode(display=False) as counter:
        run().sum().backward()
    return counter.get_total_flops()


SHAPES = {
    "gpt2": {"width": 64, "layers": 2, "heads": 2, "vocab_size": 300, "context": 32},
    "bert-base-uncased": {"width": 64, "layers": 2, "heads": 2, "ffn_size": 256, "vocab_size": 300},
    "transformer-base": {"width": 64, "layers": 2, "heads": 2, "ffn_size": 256, "vocab_size": 300},
    "t5-v1_1-small": {"width": 64, "layers": 2, "heads": 2, "ffn_size": 256, "vocab_size": 300},
    "longformer-base-4096": {
        "width": 64, "layers": 2, "heads": 2, "ffn_size": 256, "vocab_size": 300, "window": 32,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_counted_operations(name):
    """Against torch's own counter, which also counts attention that is not there (a causal half, a
    window's edges). It overlooks the fused kernel of a CPU; with dropout of the weights that one is
    not used.
    """
    torch.manual_seed(0)
    explicit = {} if name.startswith("t5") else {"dropout_attention": 0.1}
    model = create(name, **SHAPES[name] | explicit)
    tokens = torch.randint(0, 300, (3, 32))
    both = (tokens, tokens) if hasattr(model, "decoder_blocks") else (tokens,)
    operations = counted(lambda: model.output(model(*both)))
    assert step_flops(model, 32, 3) == pytest.approx(operations, rel=0.08)


def test_operations_by_hand():
    model = create("gpt2", width=64, layers=2, heads=2, vocab_size=300, context=32)
    matrices = 2 * (4 * 64 * 64 + 8 * 64 * 64)
    attention = 2 * 2 * 64 * (32 + 1) / 2
    assert step_flops(model, 32, 5) == 6 * 5 * 32 * (matrices + attention + 300 * 64)
    assert step_flops(model, 32, 5, targets=0) == 6 * 5 * 32 * (matrices + attention)
    lstm = create("lstm-medium", width=64, vocab_size=300)
    assert step_flops(lstm, 10, 1) == 6 * 10 * (2 * 8 * 64 * 64 + 300 * 64)


def test_bands_and_memory_count():
    shape = {"width": 64, "layers": 2, "heads": 2, "vocab_size": 300, "context": 64}
    dense, banded = create("gpt2", **shape), create("gpt3-small", **shape, band=4)
    assert step_flops(dense, 64, 1) - step_flops(banded, 64, 1) == 6 * 64 * 2 * 64 * (32.5 - 4)
    small = {"width": 64, "layers": 1, "heads": 2, "head_size": 32, "vocab_size": 300}
    xl = create("transformer-xl-wt103-base", **small, ffn_size=256, cutoffs=())
    more = step_flops(xl, 16, 1, past=10) - step_flops(xl, 16, 1)
    assert more == 6 * 16 * 3 * 64 * 10  # q·k, q·r and weights·v


def test_the_peak_is_measured_once():
    first = gemm_peak(torch.float32, 0.02)
    assert 1e8 < first < 1e16
    assert gemm_peak(torch.float32, 0.02) == first


FLAGS = {  # what processors say of themselves, and whether products in bf16 are fast there
    "AMD Zen 3": ({"avx2"}, False),
    "AMD Zen 4": ({"avx2", "avx512_f", "avx512_vnni", "avx512_bf16"}, True),
    "Intel Skylake-X": ({"avx2", "avx512_f"}, False),
    "Intel Ice Lake": ({"avx2", "avx512_f", "avx512_vnni"}, False),
    "Intel Sapphire Rapids": ({"avx512_f", "avx512_bf16", "amx_tile", "amx_bf16"}, True),
    "Intel Arrow Lake": ({"avx2", "avx_vnni", "avx_ne_convert"}, False),
    "Graviton 2": ({"neon", "dot"}, False),
    "Graviton 3": ({"neon", "dot", "bf16", "i8mm", "sve", "sve_bf16"}, True),
}


@pytest.mark.parametrize("processor", FLAGS)
def test_bf16_is_fast_where_there_are_instructions_for_it(processor, monkeypatch):
    flags, fast = FLAGS[processor]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(flags, True))
    for library in (True, False):  # a build without oneDNN has no use for the instructions
        ops = SimpleNamespace(_is_mkldnn_bf16_supported=lambda library=library: library)
        monkeypatch.setattr(torch.ops, "mkldnn", ops)
        assert fast_bf16("cpu") == (fast and library)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not fast_bf16("cpu")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_of_this_processor_the_system_says_the_same():
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    assert fast_bf16("cpu") == bool(words & {"avx512_bf16", "amx_bf16", "bf16", "svebf16"})


def test_no_load_changes_the_precision(monkeypatch):
    """Where nothing is timed nothing can be late."""
    idle = fast_bf16("cpu")

    def late():
        raise AssertionError("the precision was chosen with a stopwatch")

    monkeypatch.setattr(time, "perf_counter", late)
    assert fast_bf16("cpu") == idle
    assert fast_bf16("meta") is False and fast_bf16("mps") is False


def test_memory_of_a_process():
    """A new one: this one may have memory left of earlier tests, which it takes again."""
    program = """
import json, torch
from regard.training.hardware import memory
before = memory()
held = torch.ones(2**25)  # 128 MiB
print(json.dumps([before, memory()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    before, after = json.loads(done.stdout)
    assert after["resident"] - before["resident"] > 2**26
    assert after["peak"] >= after["resident"] > 0
    assert 0 < after["available"] <= after["total"]


def test_the_tightest_control_group_counts(tmp_path):
    own, mount = tmp_path / "cgroup", tmp_path / "fs"
    inner = mount / "job" / "step"
    inner.mkdir(parents=True)
    own.write_text("0::/job/step\n")
    (inner / "memory.max").write_text("max\n")
    assert control_group(own, mount) == (0, 0)
    (mount / "job" / "memory.max").write_text("5000\n")
    (mount / "job" / "memory.current").write_text("3000\n")
    (mount / "job" / "memory.stat").write_text("anon 1\ninactive_file 500\n")
    machine.limits.cache_clear()
    assert control_group(own, mount) == (5000, 2500)


def test_control_groups_of_the_first_version(tmp_path):
    own, mount = tmp_path / "cgroup", tmp_path / "fs"
    place = mount / "memory" / "job"
    place.mkdir(parents=True)
    own.write_text("9:name=systemd:/\n4:memory:/job\n")
    (place / "memory.limit_in_bytes").write_text("9000\n")
    (place / "memory.usage_in_bytes").write_text("1000\n")
    (mount / "memory" / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    assert control_group(own, mount) == (9000, 1000)
    assert control_group(tmp_path / "none", mount) == (0, 0)


def test_quick_malloc_is_set_on_glibc_only(monkeypatch):
    script = (
        "import torch; from regard.training.hardware import quick_malloc; ok = quick_malloc();"
        "x = [torch.ones(10**7) for _ in range(3)]; print(ok, float(sum(map(torch.sum, x))))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    glibc = platform.libc_ver()[0] == "glibc"
    assert done.stdout.split() == [str(glibc), "30000000.0"], done.stderr
    monkeypatch.setattr(sys, "platform", "darwin")
    assert quick_malloc() is False
