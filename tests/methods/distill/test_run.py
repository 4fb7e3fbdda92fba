"""A distillation from end to end: its run, going on, the command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.api import load
from regard.core.errors import ConfigError, InputError, RegardError
from regard.data.corpus import Corpus
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.methods.distill import sequence
from regard.methods.distill.run import NEVER, Asked, distill
from regard.methods.distill.sequence import teach_pairs
from regard.tasks import read
from regard.training.recipe import Recipe, make
from regard.training.run import train
from tests.command import run as called
from tests.methods.distill.distilling import judge as judge  # fixtures, and what they need
from tests.methods.distill.distilling import masked as masked
from tests.methods.distill.distilling import quick, recipes_of, task
from tests.methods.distill.distilling import text as text
from tests.methods.distill.distilling import translator as translator
from tests.tasks.tuning import reviews, write
from tests.tasks.tuning import stop as stop  # a fixture
from tests.training.small import recipe as text_recipe

# --- text ----------------------------------------------------------------------------------------


def test_text_from_end_to_end(masked: Path, text: Path, tmp_path: Path) -> None:
    """The run is a student that anybody opens; nothing of the teacher is in it."""
    out = tmp_path / "run"
    found = distill(quick(text), out, Asked(str(masked), "layers=2"), display="silent")
    student, teacher = regard.load(out).model, regard.load(masked).model
    assert student.config == teacher.config.replace(layers=2)
    assert set(student.state_dict()) < set(teacher.state_dict())
    sizes = found["distilled"]
    assert sizes["student"] == student.parameter_count() < sizes["teacher"]
    held = make(recipes_of(out))
    assert held.objective["of"] == "masked" and held.objective["soft"] == 5.0
    assert "masked_accuracy" in found["valid"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    parts = next(line["parts"] for line in lines if "parts" in line)
    assert set(parts) == {"masked", "soft_masked", "cosine"}


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(
    masked: Path, text: Path, tmp_path: Path, stop: list[int]
) -> None:
    """TinyBERT's losses with a narrower student, so that a matrix between both is learned, too;
    and only beside the same teacher.
    """
    asked = Asked(str(masked), "layers=2,width=8", style="tinybert")
    whole = distill(quick(text), tmp_path / "whole", asked, display="silent")
    assert whole["outcome"] == "done"
    stop.append(10)  # of 6 + 6 steps
    halted = distill(quick(text), tmp_path / "run", asked, display="silent")
    assert halted["outcome"] == "interrupted"
    weights = masked / "model.safetensors"
    kept = weights.read_bytes()
    try:
        changed = load(masked)
        changed.model.embeddings.tokens.weight.data[0] += 1
        save(changed.model, masked, changed.tokenizer, changed.source)
        with pytest.raises(InputError, match="has changed since this run began"):
            distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    finally:
        weights.write_bytes(kept)
    found = distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    assert found["outcome"] == "done" and found["progress"]["step"] == 6
    ours, theirs = (load(tmp_path / name).model.state_dict() for name in ("run", "whole"))
    assert "fit.weight" not in ours
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_memory_that_goes_along_is_saved_with_a_run(
    text: Path, tmp_path: Path, stop: list[int]
) -> None:
    """Transformer-XL: student and teacher remember, and after a stop both still do."""
    shape = {"layers": 3, "width": 16, "heads": 2, "head_size": 8, "ffn_size": 32, "mem_len": 12,
             "cutoffs": [], "ratio": 1, "same_length": False, "clamp_len": 0}  # fmt: skip
    given = text_recipe("transformer-xl", text, shape=shape, batch={"size": 4, "seq_len": 8})
    train(given, tmp_path / "teacher", display="silent")
    small = {"batch": {"size": 4, "seq_len": 8}}
    asked = Asked(str(tmp_path / "teacher"), "layers=1")
    distill(quick(text, **small), tmp_path / "whole", asked, display="silent")
    stop.append(6 + 6 + 4)
    halted = distill(quick(text, **small), tmp_path / "run", asked, display="silent")
    assert halted["outcome"] == "interrupted"
    distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    ours, theirs = (load(tmp_path / name).model.state_dict() for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


# --- tasks ---------------------------------------------------------------------------------------


def accuracy(run: Path, file: Path) -> float:
    held: Any = read(file, "classify")
    said = Predictor(load(run))(held)
    return sum(one.value == e.label for one, e in zip(said, held, strict=True)) / len(held)


@pytest.mark.parametrize("style", ["", "tinybert"])
def test_a_task_from_end_to_end(judge: tuple[Path, Path], tmp_path: Path, style: str) -> None:
    teacher, file = judge
    test = write(tmp_path / "test.jsonl", reviews(60, seed=9))
    assert accuracy(teacher, test) > 0.95
    asked = Asked(str(teacher), "layers=1", style=style)
    found = distill(task(file, budget={"steps": 30}), tmp_path / "run", asked, display="silent")
    assert found["valid"]["accuracy"] > 0.9
    assert accuracy(tmp_path / "run", test) > 0.85
    assert (tmp_path / "run" / "first" / "layers" / "run.json").is_file() == bool(style)
    assert json.loads((tmp_path / "run" / "task.json").read_text())["objective"]["name"] == (
        "classify"
    )


def test_a_smaller_vocabulary(judge: tuple[Path, Path], tmp_path: Path) -> None:
    """What the reviews use stays, with the marks; answers are those of before."""
    teacher, file = judge
    asked = Asked(str(teacher), "layers=3", vocab_size=40)
    made = task(file, budget={"steps": 1}, optimizer={"lr": 0.0})
    found = distill(made, tmp_path / "run", asked, display="silent")
    student, before = regard.load(tmp_path / "run"), regard.load(teacher)
    assert student.tokenizer is not None and len(student.tokenizer) == 40
    assert student.config.vocab_size == 40 < before.config.vocab_size
    assert found["distilled"]["student"] == before.model.parameter_count() - 32 * (
        before.config.vocab_size - 40
    )
    held: Any = read(file, "classify")
    ours, theirs = (Predictor(one)(held[:20]) for one in (student, before))
    assert [one.value for one in ours] == [one.value for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)


def test_what_is_set_for_one_stage_is_not_learned_in_the_other(
    judge: tuple[Path, Path], tmp_path: Path
) -> None:
    teacher, file = judge
    asked = Asked(str(teacher), "layers=1", style="tinybert")
    given = task(
        file, budget={"steps": 2}, objective={"hidden": 2.0, "hard": 0.5},
        validation={"every": 1, "patience": 1},
    )  # fmt: skip
    distill(given, tmp_path / "run", asked, display="silent")
    places = tmp_path / "run" / "first" / "layers", tmp_path / "run"
    layers, answers = (recipes_of(place)["objective"] for place in places)
    assert (layers["hidden"], layers["soft"], layers["hard"]) == (2.0, 0.0, 0.0)
    assert (answers["hidden"], answers["soft"], answers["hard"]) == (0.0, 1.0, 0.5)
    # No score of answers chooses among the steps of the layers, nor ends them.
    first, last = (recipes_of(place)["validation"] for place in places)
    assert first["every"] == NEVER and "patience" not in first
    assert (last["every"], last["patience"]) == (1, 1)
    assert json.loads((places[0] / "run.json").read_text())["best"]["step"] == 2


def test_a_stage_that_was_stopped_is_gone_on_with(
    judge: tuple[Path, Path],
    tmp_path: Path,
    stop: list[int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    teacher, file = judge
    asked = Asked(str(teacher), "layers=2", style="tinybert")
    stop.append(3)
    halted = distill(task(file), tmp_path / "run", asked, display="plain")
    assert halted["outcome"] == "interrupted" and not (tmp_path / "run" / "recipe.toml").exists()
    told = capfd.readouterr()
    assert f"regard distill --resume {tmp_path / 'run'}\n" in told.out + told.err
    assert "regard finetune" not in told.out + told.err
    with pytest.raises(ConfigError, match="resume"):
        distill(task(file), tmp_path / "run", asked, display="silent")
    found = distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    assert found["outcome"] == "done"
    distill(task(file), tmp_path / "whole", asked, display="silent")
    ours, theirs = (load(tmp_path / name).model.state_dict() for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


# --- pairs ---------------------------------------------------------------------------------------


def test_the_teacher_s_translations_are_the_targets(
    translator: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle it goes on; sources and what validates stay as they were."""
    teacher, where = translator
    loaded = load(teacher)
    monkeypatch.setattr(sequence, "BLOCK", 8)
    whole = teach_pairs(loaded, where, tmp_path / "whole", beams=2)

    def tired(done: int, total: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        teach_pairs(loaded, where, tmp_path / "again", beams=2, watch=tired)
    notes = tmp_path / "again.jsonl"
    notes.write_text(notes.read_text() + "[3, 4")  # a line that was cut off
    seen: list[int] = []
    teach_pairs(loaded, where, tmp_path / "again", beams=2, watch=lambda done, _: seen.append(done))
    assert seen == [16, 20]
    ours, again = (Corpus.open(tmp_path / name, "train") for name in ("whole", "again"))
    before = Corpus.open(where, "train")
    assert len(ours.documents) == len(before.documents) and whole["kind"] == "pairs"
    for i in range(20):
        assert ours.document(i).tolist() == again.document(i).tolist()
        source = sequence.source_of(before, i)
        target = ours.document(i).tolist()[len(source) :]
        best = regard.decoding.generate(
            loaded, source, num_beams=2, max_new_tokens=len(target) + 40
        )[0][0]
        assert sequence.source_of(ours, i) == source and target[-1] == before.special.end
        assert best.reason != "end" or best.ids == target
    for split in ("valid", "test"):
        held, old = (Corpus.open(place, split) for place in (tmp_path / "whole", where))
        assert held.read(0, len(held)).tolist() == old.read(0, len(old)).tolist()
    with pytest.raises(RegardError, match="other beams"):
        teach_pairs(loaded, where, tmp_path / "again", beams=3)


def test_decoding_goes_on_only_with_the_same_teacher_and_data(
    translator: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their places say little: a run may have learned on, data may have been prepared anew."""
    teacher, where = (shutil.copytree(path, tmp_path / path.name) for path in translator)
    monkeypatch.setattr(sequence, "BLOCK", 8)

    def go(watch: Any = lambda done, total: None) -> None:
        teach_pairs(load(teacher), where, tmp_path / "made", beams=1, watch=watch)

    def tired(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tired)
    weights, tokens = teacher / "model.safetensors", where / "train-00000.tokens"
    for file in (weights, tokens):
        kept = file.read_bytes()
        if file == weights:
            changed = load(teacher)
            changed.model.output.weight.data += 1
            save(changed.model, teacher, changed.tokenizer, changed.source)
        else:
            file.write_bytes(bytes([kept[0] ^ 1]) + kept[1:])
        assert file.read_bytes() != kept
        with pytest.raises(RegardError, match="was begun with other data, another teacher"):
            go()
        file.write_bytes(kept)
    go()
    assert len(Corpus.open(tmp_path / "made", "train").documents) == 21


def test_a_source_without_room_is_found_before_the_first_is_decoded(
    translator: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape: dict[str, Any] = {"vocab_size": 40, "width": 16, "layers": 1, "heads": 2, "context": 4}
    loaded = regard.LoadedModel(regard.create("gpt", **shape))
    monkeypatch.setattr(sequence, "generate", lambda *given, **more: pytest.fail("too late"))
    with pytest.raises(ConfigError, match="a source has"):
        teach_pairs(loaded, translator[1], tmp_path / "made")
    assert not list(tmp_path.iterdir())


def test_translation_from_end_to_end(translator: tuple[Path, Path], tmp_path: Path) -> None:
    teacher, where = translator
    for name, asked in {
        "sequence": Asked(str(teacher), "layers=1", sequence=True, num_beams=2),
        "words": Asked(str(teacher), "decoder_layers=1"),
        "both": Asked(str(teacher), "layers=1", style="hinton", sequence=True, num_beams=1),
    }.items():
        out = tmp_path / name
        found = distill(quick(where), out, asked, display="silent")
        assert found["distilled"]["share"] < 1 and "perplexity" in found["valid"]
        learned = recipes_of(out)
        assert learned["objective"]["name"] == ("pairs" if name == "sequence" else "distill")
        assert learned["data"].endswith("first/pairs") == asked.sequence


def test_the_command(masked: Path, text: Path, tmp_path: Path) -> None:
    words = [str(masked), "--student", "layers=1", "--data", str(text), "--out",
             str(tmp_path / "run"), "--steps", "2", "--method", "hinton", "--quiet", "--json",
             "batch.size=2", "batch.seq_len=16", "engine.compile=no",
             "engine.precision=fp32"]  # fmt: skip
    found = called("distill", *words)
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert said["progress"]["step"] == 2 and 0 < said["distilled"]["share"] < 1
    cases: list[tuple[list[str], str]] = [
        ([str(masked), "--data", str(text)], "--student"),
        ([*words, "--num-beams", "2"], "only --sequence-level uses"),
        ([*words, "--task", "classify"], "--task is for a file of labeled examples"),
        ([*words, "--valid", "v.jsonl"], "--valid is for a file"),
        ([*words, "--skip", "no-label"], "--skip is for a file"),
        ([*words, "--field", "text=body"], "--field is for a file"),
        ([*words, "--format", "csv"], "--format is for a file"),
        ([*words, "--no-header"], "--header is for a file"),
        ([*words, "examples.valid_fraction=0.2"], "examples.valid_fraction is for a file"),
        (["--resume", str(tmp_path / "run"), "--method", "hinton"], "--method is given beside"),
        (["--resume", str(tmp_path / "run"), "optimizer.lr=1"], "optimizer.lr is given beside"),
    ]
    for given, said in cases:
        refused = called("distill", *given)
        assert isinstance(refused.exception, ConfigError) and said in str(refused.exception)
