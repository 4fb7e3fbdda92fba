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
from regard.core.errors import ConfigError, FormatError, InputError
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
from tests.refusals import refuses
from tests.tasks.tuning import reviews, write
from tests.tasks.tuning import stop as stop  # a fixture
from tests.training.small import recipe as text_recipe

# --- text ----------------------------------------------------------------------------------------


def test_text_from_end_to_end(masked: Path, text: Path, tmp_path: Path) -> None:
    """The run is a student that anybody opens; nothing of the teacher is in it."""
    out = tmp_path / "run"
    report = distill(quick(text), out, Asked(str(masked), "layers=2"), display="silent")
    student, teacher = regard.load(out).model, regard.load(masked).model
    assert student.config == teacher.config.replace(layers=2)
    assert set(student.state_dict()) < set(teacher.state_dict())
    sizes = report["distilled"]
    assert sizes["student"] == student.parameter_count() < sizes["teacher"]
    recipe = make(recipes_of(out))
    assert recipe.objective["of"] == "masked" and recipe.objective["soft"] == 5.0
    assert "masked_accuracy" in report["valid"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    parts = next(line["parts"] for line in lines if "parts" in line)
    assert set(parts) == {"masked", "soft_masked", "cosine"}


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(
    masked: Path, text: Path, tmp_path: Path, stop: list[int]
) -> None:
    """TinyBERT's losses with a narrower student, so that a matrix between both is learned, too;
    and only beside the same teacher.
    """
    options = Asked(str(masked), "layers=2,width=8", style="tinybert")
    whole = distill(quick(text), tmp_path / "whole", options, display="silent")
    assert whole["outcome"] == "done"
    stop.append(10)  # of 6 + 6 steps
    halted = distill(quick(text), tmp_path / "run", options, display="silent")
    assert halted["outcome"] == "interrupted"
    weights = masked / "model.safetensors"
    before = weights.read_bytes()
    try:
        changed = load(masked)
        changed.model.embeddings.tokens.weight.data[0] += 1
        save(changed.model, masked, changed.tokenizer, changed.source)
        with refuses(InputError, masked, "changed"):
            distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    finally:
        weights.write_bytes(before)
    report = distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    assert report["outcome"] == "done" and report["progress"]["step"] == 6
    ours, theirs = (load(tmp_path / name).model.state_dict() for name in ("run", "whole"))
    assert "fit.weight" not in ours
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_memory_that_goes_along_is_saved_with_a_run(
    text: Path, tmp_path: Path, stop: list[int]
) -> None:
    """Transformer-XL: student and teacher remember, and after a stop both still do."""
    shape = {"layers": 3, "width": 16, "heads": 2, "head_size": 8, "ffn_size": 32, "mem_len": 12,
             "cutoffs": [], "ratio": 1, "same_length": False, "clamp_len": 0}  # fmt: skip
    recipe = text_recipe("transformer-xl", text, shape=shape, batch={"size": 4, "seq_len": 8})
    train(recipe, tmp_path / "teacher", display="silent")
    small = {"batch": {"size": 4, "seq_len": 8}}
    options = Asked(str(tmp_path / "teacher"), "layers=1")
    distill(quick(text, **small), tmp_path / "whole", options, display="silent")
    stop.append(6 + 6 + 4)
    halted = distill(quick(text, **small), tmp_path / "run", options, display="silent")
    assert halted["outcome"] == "interrupted"
    distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    ours, theirs = (load(tmp_path / name).model.state_dict() for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


# --- tasks ---------------------------------------------------------------------------------------


def accuracy(run: Path, file: Path) -> float:
    examples: Any = read(file, "classify")
    predictions = Predictor(load(run))(examples)
    return sum(one.value == e.label for one, e in zip(predictions, examples, strict=True)) / len(
        examples
    )


@pytest.mark.parametrize("style", ["", "tinybert"])
def test_a_task_from_end_to_end(judge: tuple[Path, Path], tmp_path: Path, style: str) -> None:
    teacher, file = judge
    test = write(tmp_path / "test.jsonl", reviews(60, seed=9))
    assert accuracy(teacher, test) > 0.95
    options = Asked(str(teacher), "layers=1", style=style)
    report = distill(task(file, budget={"steps": 30}), tmp_path / "run", options, display="silent")
    assert report["valid"]["accuracy"] > 0.9
    assert accuracy(tmp_path / "run", test) > 0.85
    assert (tmp_path / "run" / "first" / "layers" / "run.json").is_file() == bool(style)
    assert json.loads((tmp_path / "run" / "task.json").read_text())["objective"]["name"] == (
        "classify"
    )


def test_a_smaller_vocabulary(judge: tuple[Path, Path], tmp_path: Path) -> None:
    """What the reviews use stays, with the marks; answers are those of before."""
    teacher, file = judge
    options = Asked(str(teacher), "layers=3", vocab_size=40)
    recipe = task(file, budget={"steps": 1}, optimizer={"lr": 0.0})
    report = distill(recipe, tmp_path / "run", options, display="silent")
    student, before = regard.load(tmp_path / "run"), regard.load(teacher)
    assert student.tokenizer is not None and len(student.tokenizer) == 40
    assert student.config.vocab_size == 40 < before.config.vocab_size
    assert report["distilled"]["student"] == before.model.parameter_count() - 32 * (
        before.config.vocab_size - 40
    )
    examples: Any = read(file, "classify")
    ours, theirs = (Predictor(one)(examples[:20]) for one in (student, before))
    assert [one.value for one in ours] == [one.value for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)


def test_what_is_set_for_one_stage_is_not_learned_in_the_other(
    judge: tuple[Path, Path], tmp_path: Path
) -> None:
    teacher, file = judge
    options = Asked(str(teacher), "layers=1", style="tinybert")
    recipe = task(
        file, budget={"steps": 2}, objective={"hidden": 2.0, "hard": 0.5},
        validation={"every": 1, "patience": 1},
    )  # fmt: skip
    distill(recipe, tmp_path / "run", options, display="silent")
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
    options = Asked(str(teacher), "layers=2", style="tinybert")
    stop.append(3)
    halted = distill(task(file), tmp_path / "run", options, display="plain")
    assert halted["outcome"] == "interrupted" and not (tmp_path / "run" / "recipe.toml").exists()
    captured = capfd.readouterr()
    assert f"regard distill --resume {tmp_path / 'run'}\n" in captured.out + captured.err
    assert "regard finetune" not in captured.out + captured.err
    with refuses(ConfigError, tmp_path / "run", "--resume"):
        distill(task(file), tmp_path / "run", options, display="silent")
    report = distill(Recipe(), tmp_path / "run", resume=True, display="silent")
    assert report["outcome"] == "done"
    distill(task(file), tmp_path / "whole", options, display="silent")
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
        corpus, old = (Corpus.open(place, split) for place in (tmp_path / "whole", where))
        assert corpus.read(0, len(corpus)).tolist() == old.read(0, len(old)).tolist()
    with refuses(FormatError, "again.jsonl", "beams"):
        teach_pairs(loaded, where, tmp_path / "again", beams=3)
    notes.write_bytes(notes.read_bytes()[:-2] + b"\xff\n")
    with refuses(FormatError, "again.jsonl", "damaged"):
        list(sequence.lines_of(notes))


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
        before = file.read_bytes()
        if file == weights:
            changed = load(teacher)
            changed.model.output.weight.data += 1
            save(changed.model, teacher, changed.tokenizer, changed.source)
        else:
            file.write_bytes(bytes([before[0] ^ 1]) + before[1:])
        assert file.read_bytes() != before
        with refuses(FormatError, "made.jsonl", "data", "teacher"):
            go()
        file.write_bytes(before)
    go()
    assert len(Corpus.open(tmp_path / "made", "train").documents) == 21


def test_a_source_without_room_is_found_before_the_first_is_decoded(
    translator: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape: dict[str, Any] = {"vocab_size": 40, "width": 16, "layers": 1, "heads": 2, "context": 4}
    loaded = regard.LoadedModel(regard.create("gpt", **shape))
    monkeypatch.setattr(sequence, "generate", lambda *args, **more: pytest.fail("too late"))
    with refuses(ConfigError, "10 tokens", "4"):
        teach_pairs(loaded, translator[1], tmp_path / "made")
    assert not list(tmp_path.iterdir())


def test_translation_from_end_to_end(translator: tuple[Path, Path], tmp_path: Path) -> None:
    teacher, where = translator
    for name, options in {
        "sequence": Asked(str(teacher), "layers=1", sequence=True, num_beams=2),
        "words": Asked(str(teacher), "decoder_layers=1"),
        "both": Asked(str(teacher), "layers=1", style="hinton", sequence=True, num_beams=1),
    }.items():
        out = tmp_path / name
        report = distill(quick(where), out, options, display="silent")
        assert report["distilled"]["share"] < 1 and "perplexity" in report["valid"]
        learned = recipes_of(out)
        assert learned["objective"]["name"] == ("pairs" if name == "sequence" else "distill")
        assert learned["data"].endswith("first/pairs") == options.sequence


def test_the_command(masked: Path, text: Path, tmp_path: Path) -> None:
    words = [str(masked), "--student", "layers=1", "--data", str(text), "--out",
             str(tmp_path / "run"), "--steps", "2", "--method", "hinton", "--quiet", "--json",
             "batch.size=2", "batch.seq_len=16", "engine.compile=no",
             "engine.precision=fp32"]  # fmt: skip
    result = called("distill", *words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["progress"]["step"] == 2 and 0 < report["distilled"]["share"] < 1
    resumed = ["--resume", str(tmp_path / "run")]
    cases: list[tuple[list[str], list[object]]] = [
        ([str(masked), "--data", str(text)], ["--student"]),
        ([*words, "--num-beams", "2"], ["--num-beams", "--sequence-level"]),
        ([*words, "--task", "classify"], [text, "--task"]),
        ([*words, "--valid", "v.jsonl"], [text, "--valid"]),
        ([*words, "--skip", "no-label"], [text, "--skip"]),
        ([*words, "--field", "text=body"], [text, "--field"]),
        ([*words, "--format", "csv"], [text, "--format"]),
        ([*words, "--no-header"], [text, "--header"]),
        ([*words, "examples.valid_fraction=0.2"], [text, "examples.valid_fraction"]),
        ([*resumed, "--method", "hinton"], ["--method", "--resume"]),
        ([*resumed, "optimizer.lr=1"], ["optimizer.lr", "--resume"]),
    ]
    for arguments, names in cases:
        with refuses(ConfigError, *names):
            raise called("distill", *arguments).exception or AssertionError(arguments)
