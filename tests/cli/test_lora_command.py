"""`regard finetune --lora` and `regard convert --merge`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard
from regard.cli.main import main
from regard.core.errors import ConfigError, UnknownName
from regard.models.extensions.lora import options_in
from tests.cli.test_cli import refused
from tests.refusals import refuses
from tests.tasks import tuning


def test_from_adapters_to_a_plain_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tuning.bert(tmp_path / "bert")
    file = tuning.write(tmp_path / "train.jsonl", tuning.reviews(16))
    run, merged = str(tmp_path / "run"), str(tmp_path / "merged")
    words = ["finetune", str(base), "--task", "classify", "--data", str(file), "--out", run]
    words += ["--lora", "rank=2,alpha=4,targets=query+out", "--steps", "2", "--quiet"]
    assert main([*words, "engine.precision=fp32"]) == 0
    capsys.readouterr()
    assert main(["info", run, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    wanted = {"rank": 2, "alpha": 4.0, "targets": ["query", "out"], "base": str(base)}
    assert facts["extensions"]["lora"] == wanted | {"dropout": 0.0}
    assert facts["adapters_open_in_peft"] is True
    assert main(["convert", run, "--merge", "--out", merged]) == 0
    assert capsys.readouterr().out.strip() == merged
    text = "the film was fine"
    one, other = (regard.load(place).classify(text).score for place in (run, merged))
    assert one == pytest.approx(other, abs=1e-6)
    assert regard.load(merged).model.extensions == {}
    assert "exists already" in refused(capsys, "convert", run, "--merge", "--out", merged)
    assert "belong together" in refused(capsys, "convert", run, "--merge")
    assert "no LoRA adapters" in refused(
        capsys, "convert", merged, "--merge", "--out", str(tmp_path / "again")
    )


def test_words() -> None:
    assert options_in("default") == {}
    assert options_in("rank=4,targets=query+value") == {"rank": 4, "targets": ["query", "value"]}
    with refuses(ConfigError, "rank=x", "rank=8"):
        options_in("rank=x")
    with refuses(UnknownName, "extensions.lora.ranks", "rank"):
        options_in("ranks=4")
