"""Models that are saved after so many words of the text: at the right step, also after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.core.errors import ConfigError
from regard.data.encode import WordCounter
from regard.training import recipe as recipes
from regard.training import run as runs
from regard.training.checkpoint import Checkpoints
from regard.training.recipe import Recipe
from tests.command import run as called
from tests.refusals import refuses
from tests.training.small import data, planned, recipe

WORDS = 1000  # of the training text, as it says


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared text that says how many words it has."""
    where = data(tmp_path_factory.mktemp("counted"))
    facts = json.loads((where / "data.json").read_text())
    facts["splits"]["train"]["words"] = WORDS
    (where / "data.json").write_text(json.dumps(facts))
    return where


def at(where: Path, *words: int, **changes: Any) -> Recipe:
    checkpoint = {"at_words": list(words), "every": 1, "keep": 10**6}
    return recipe("gpt", where, checkpoint=checkpoint, budget={"steps": 12}, **changes)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(regard.load(path).model.state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def words_at(where: Path, step: int) -> int:
    """The words that were read after a step."""
    plan = planned(at(where))
    plan.batches.close()
    return round(WORDS * step * plan.recipe.batch.size / len(plan.objective))


def test_the_model_of_the_step_is_saved(counted: Path, tmp_path: Path) -> None:
    few, more = words_at(counted, 3), words_at(counted, 7)
    out = tmp_path / "run"
    runs.train(at(counted, few, more, 10**6), out, display="silent")
    states = {saved.step: saved for saved in Checkpoints(out / "checkpoints").intact()}
    for step, words in ((3, few), (7, more)):
        place = out / f"words-{words}"
        assert same(weights(place), states[step].tensors("weights"))
        assert regard.load(place).tokenizer is not None
    assert not (out / "words-1M").exists()  # the run ends before


def test_a_pass_reads_all_words_and_the_names_are_short(counted: Path) -> None:
    plan = planned(at(counted, WORDS, 10 * WORDS))
    plan.batches.close()
    steps = len(plan.objective) / plan.recipe.batch.size
    assert plan.milestones == {round(steps): [WORDS], round(10 * steps): [10 * WORDS]}
    from regard.training.progress import short_count

    assert [short_count(n) for n in (10**6, 250_000, 1234, 10**8)] == ["1M", "250k", "1234", "100M"]


def test_a_killed_run_saves_the_same_models(
    counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kill comes before the model is saved, one between the model and its checkpoint."""
    few, more = words_at(counted, 3), words_at(counted, 7)
    chosen = at(counted, few, more)
    runs.train(chosen, tmp_path / "whole", display="silent")
    reach = runs.TrainingRun.reach_milestones

    def killed(after: bool, step: int) -> None:
        def dies(self: Any) -> None:
            if after or self.loop.progress.step < step:
                reach(self)
            if self.loop.progress.step == step:
                raise KeyboardInterrupt

        monkeypatch.setattr(runs.TrainingRun, "reach_milestones", dies)

    out = tmp_path / "parts"
    for number, (after, step) in enumerate(((False, 3), (True, 7))):
        killed(after, step)
        with pytest.raises(KeyboardInterrupt):
            runs.train(Recipe() if number else chosen, out, resume=bool(number), display="silent")
    monkeypatch.setattr(runs.TrainingRun, "reach_milestones", reach)
    runs.train(Recipe(), out, resume=True, display="silent")
    for words in (few, more):
        name = f"words-{words}"
        assert same(weights(out / name), weights(tmp_path / "whole" / name))
    assert same(weights(out), weights(tmp_path / "whole"))


def test_what_cannot_be_counted_is_refused(where: Path, counted: Path) -> None:
    with refuses(ConfigError, "checkpoint.at_words", str(where), "prepare"):
        planned(at(where, 100))
    for wrong in ((0,), (5, 5), (-1, 3)):
        with refuses(ConfigError, "checkpoint.at_words", str(list(wrong))):
            planned(at(counted, *wrong))


def test_a_run_that_ends_before_says_so(counted: Path) -> None:
    from regard.training.parallel import ProcessGroup
    from regard.training.plan import prepare

    notes: list[str] = []
    chosen = at(counted, 10**6)
    prepare(chosen, ProcessGroup(), torch.device("cpu"), notes.append).batches.close()
    assert any("1,000,000" in note and "checkpoint.at_words" in note for note in notes)


@pytest.mark.parametrize("split_by", ["blank", "line", "file"])
def test_prepare_counts_the_words_of_the_source(split_by: str, tmp_path: Path) -> None:
    text = "One two\tthree.Four five!\n\n猫坐在垫子上。狗没有。  今天 好。\n\nsix\u3000seven\n" * 40
    (tmp_path / "text.txt").write_text(text)
    done = called("prepare", tmp_path / "text.txt", "--out", tmp_path / "data", "--json",
                  "--split-by", split_by, "--vocab-size", "370")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["words"] == len(text.split())
    splits = json.loads((tmp_path / "data" / "data.json").read_text())["splits"]
    assert sum(split["words"] for split in splits.values()) == len(text.split())


def test_a_word_may_go_on_in_the_next_piece() -> None:
    counter = WordCounter()
    assert [counter(piece) for piece in ("one tw", "o ", "three", "", " ", "four")] == [
        2, 0, 1, 0, 0, 1,
    ]  # fmt: skip
    counter.close()
    assert counter("five") == 1


def test_the_recipe_of_babylm() -> None:
    chosen = recipes.make(recipes.read(recipes.find("babylm-10m")))
    million = 10**6
    assert chosen.checkpoint.at_words == [
        *range(million, 10 * million + 1, million),
        *range(20 * million, 100 * million + 1, 10 * million),
    ]
    assert chosen.budget.epochs == 10 and chosen.by_budget
