"""Fine-tuning: a pre-trained model learns a task from labeled examples.

Three options add stages; each stage is one run, or several, inside the run:

RUN/
  finetune.json                 the options and the recipe, to resume with
  text, adapted                 --adapt: pre-training continued on the task's text
  first, pseudo.jsonl           --unlabeled: a first model labeled what it was sure of
  config.json, …                the model, as in any run
  fold-1, fold-2, …, folds.json --folds instead: one run, with all of the above, for each fold
"""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import ConfigError
from regard.core.files import read_json
from regard.core.processes import RunLock
from regard.data.problems import Problems
from regard.methods import runs
from regard.methods.finetune.multi_stage import (
    PLAN,
    FinetuneOptions,
    check_stages,
    data_digest,
    read_unlabeled,
    resumed,
)
from regard.methods.runs import (
    BEFOREHAND,
    Facts,
    StageInterrupted,
    check_pretrained,
    data_for,
    run,
)
from regard.models import FAMILIES
from regard.tasks import as_text as texts
from regard.tasks import task as find
from regard.tasks.corpus import read_all
from regard.training.build import family
from regard.training.parallel import ProcessGroup
from regard.training.progress import watch
from regard.training.recipe import Recipe, replaced
from regard.training.recipe_parts import Budget
from regard.training.run import RECIPE, check_place

PLAIN = FinetuneOptions()


def finetune(
    recipe: Recipe,
    out: Path,
    *,
    stages: FinetuneOptions = PLAIN,
    resume: bool = False,
    display: str = "auto",
) -> Facts:
    """Trains by a recipe whose `examples.task` names the task. Returns the content of run.json, or,
    for a cross-validation, of folds.json."""
    out = Path(out)
    if resume and not (out / PLAN).is_file():
        return run(recipe, out, resume=True, display=display)
    if resume:
        steps = recipe.budget.steps
        recipe, stages = resumed(out)
        check_stages(recipe, stages)
        if steps and stages.folds:
            raise ConfigError("a cross-validation resumes with its first budget; leave --steps out")
        if steps:
            recipe = replaced(recipe, budget=Budget(steps=steps))
        return FinetuneRun(stages, display, steps).go(recipe, out)
    check(recipe)
    if (out / PLAN).is_file():
        raise ConfigError(f"{out} exists already; resume it with --resume, or choose another --out")
    if not stages:
        return learn(recipe, out, False, display)
    check_stages(recipe, stages)
    check_place(out, False, ProcessGroup(), BEFOREHAND)
    rehearse(recipe, stages)
    runs.write_plan(out / PLAN, stages, recipe, digest=data_digest(recipe, stages))
    return FinetuneRun(stages, display).go(recipe, out)


def check(recipe: Recipe) -> None:
    """Raises ConfigError for a task that is not fine-tuned, and for a model that is not
    pre-trained."""
    task = find(recipe.examples.task or "")
    if not task.finetuned:
        raise ConfigError("preferences are learned by 'regard align MODEL --data FILE --out RUN'")
    check_pretrained(recipe.model, "fine-tuning needs a pre-trained model")


def rehearse(recipe: Recipe, stages: FinetuneOptions) -> None:
    """Raises now the errors that the run itself would raise, perhaps hours later."""
    if stages.unlabeled:
        read_unlabeled(recipe, stages)
    if stages.adapt:
        from regard.methods.finetune.adaptation import check_tokenizer

        check_tokenizer(recipe.model)
    trial = replaced(recipe, examples={"folds": stages.folds})
    if as_text(recipe):
        texts.check(trial)
        texts.divided(trial, "silent")
        return
    if stages.folds:
        examples = read_all(recipe.data, trial, Problems())
        labels = find(recipe.examples.task or "").labels_in(examples)
        trial = replaced(trial, examples={"labels": labels})
    runs.rehearse(trial)


def as_text(recipe: Recipe) -> bool:
    return find(recipe.examples.task or "").text_only or FAMILIES[family(recipe)].writes_tasks


def learn(recipe: Recipe, out: Path, go_on: bool, display: str) -> Facts:
    """Does one run, either as text or with a head, whichever suits the model and the task."""
    if not go_on and as_text(recipe):
        return texts.finetune_as_text(recipe, out, data=data_for(recipe), display=display)
    return run(recipe, out, resume=go_on, display=display)


class FinetuneRun:
    """Runs the stages before a fine-tuning and then the fine-tuning itself, and resumes both."""

    def __init__(self, stages: FinetuneOptions, display: str, steps: int | None = None) -> None:
        self.stages, self.display = stages, display
        self.steps = steps  # a larger budget for a resumed run; None: its own budget

    def go(self, recipe: Recipe, out: Path) -> Facts:
        from regard.methods.finetune.folds import cross_validate

        try:
            if not self.stages.folds:
                return self.single(recipe, out, (out / RECIPE).is_file())
            with RunLock(out):
                return cross_validate(recipe, out, self.stages.folds, self.single, self.display)
        except StageInterrupted as stopped:
            watch(self.display).stop(f"stopped; resume with: regard finetune --resume {out}")
            return stopped.facts

    def single(self, recipe: Recipe, out: Path, go_on: bool) -> Facts:
        """Trains one model with all its stages. The returned facts include the results of the
        stages."""
        from regard.methods.finetune.adaptation import ADAPTED, adapt
        from regard.methods.finetune.pseudo_labels import SUMMARY, SURE, labeled_by_a_first

        stages, extra = self.stages, Facts()
        if not go_on and (stages.adapt or stages.confidence):
            with RunLock(out):  # the run itself takes the lock again
                if stages.adapt:
                    adapt(recipe, out, stages, self.display)
                    recipe = replaced(recipe, model=str(out / ADAPTED))
                if stages.confidence:
                    labels = labeled_by_a_first(recipe, out, stages, self.plain, self.display)
                    more = str(out / SURE) if sum(labels["kept"].values()) else None
                    recipe = replaced(recipe, examples={"extra_data": more})
        facts = self.plain(recipe, out, go_on)
        if before := runs.ended(out / ADAPTED):
            extra["adapted"] = {"out": before["out"], "steps": before["progress"]["step"]}
        if pseudo := read_json(out / SUMMARY):
            extra["pseudo"] = pseudo
        return facts | extra

    def plain(self, recipe: Recipe, out: Path, go_on: bool) -> Facts:
        if go_on:  # the recipe is read from the run's directory
            recipe = Recipe(engine=recipe.engine, budget=Budget(steps=self.steps))
        return learn(recipe, out, go_on, self.display)
