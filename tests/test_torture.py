"""A minute of kills, damaged files, full disks and power losses; scripts/torture.py does more."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KILLS, COUNTS = 8, {"files": 320, "disk": 8, "power": 8}


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="the layer needs Linux and g++"
)
def test_nothing_is_lost(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "torture.py"), "all", "--count", "8", "--place",
             str(tmp_path)]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "journal-0.jsonl").read_text().splitlines()]
    assert {p: sum(row["part"] == p for row in rows) for p in COUNTS} == COUNTS
    assert KILLS <= sum(row.get("kills", 0) for row in rows) <= KILLS + 2
    assert any(row.get("hits") for row in rows) and any(row.get("refused") for row in rows)


def test_the_power_loss_is_one(tmp_path: Path) -> None:
    """What is written in the way of other programs is lost: the simulation can fail."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from torture_power import FileOperation, SimulatedDisk
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("old")
    disk = SimulatedDisk(root)
    here = root.stat().st_ino
    for kind, a, b, one, two in (
        ("C", here, 1, b"part", b""),
        ("W", 1, 0, b"new", b""),
        ("R", here, here, b"part", b"a"),  # neither the content nor the name was synced
    ):
        disk.apply(FileOperation(kind, a, b, 0, one, two))
    for survive, content in ((True, ""), (False, "old")):
        place = tmp_path / str(survive)
        disk.write(place, names_survive=survive)
        assert (place / "a").read_text() == content and len(list(place.iterdir())) == 1
    for number in (1, here):
        disk.apply(FileOperation("S", number, 0, 0, b"", b""))
    disk.write(tmp_path / "synced", names_survive=False)
    assert (tmp_path / "synced" / "a").read_text() == "new"
