"""A run from beginning to end: steps, validations, checkpoints, and the files in its directory.

RUN/
  config.json, model.safetensors, tokenizer.json   the model, as `regard.load` and others open it
  recipe.toml      all settings of the run
  metrics.jsonl    the metrics of steps and validations
  run.json         the facts of the run and its outcome
  report.html, README.md
  manifest.json    size and SHA-256 of each of these files, written when the run ends
  checkpoints/     the states from which the run can resume
  words-1M/ …      the models after so many words, if checkpoint.at_words names them
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.core.atomic_dir import MANIFEST, write_manifest
from regard.core.errors import (
    ConfigError,
    Diverged,
    FormatError,
    RegardError,
    StorageError,
    counted,
)
from regard.core.files import check_kinds, naming, write_json
from regard.core.processes import RunLock, StopSignal
from regard.core.tables import from_table
from regard.formats import directory
from regard.formats.format import ended_by
from regard.formats.registry import read_config
from regard.formats.weights import aligned
from regard.objectives.base import Objective, hooks_of
from regard.training import checkpoint
from regard.training import recipe as recipes
from regard.training.build import model_for
from regard.training.checkpoint import Checkpoints, SavedCheckpoint, mean, order, whole
from regard.training.data import TextData
from regard.training.hardware import memory, quick_malloc
from regard.training.loggers import check_loggers
from regard.training.loop import RISEN, Loop, RunProgress, StepMetrics
from regard.training.parallel import ProcessGroup, is_joined, join, leave
from regard.training.plan import TrainingPlan, prepare
from regard.training.progress import (
    Metrics,
    ProgressDisplay,
    figures,
    number,
    peak_share,
    short_count,
    watch,
)
from regard.training.recipe import FrozenConfig, Recipe, replaced
from regard.training.train_module import Interrupted, TrainModule, validate

Files = Mapping[str, Mapping[str, torch.Tensor]]
STORED = ("weights", "optimizer", "memory")  # what a checkpoint holds
RECIPE, FACTS, METRICS = "recipe.toml", "run.json", "metrics.jsonl"
FOREVER = 2**62  # steps
LATE = 1.1  # a run in minutes is ended when it takes this much longer than calibrated


def train(
    recipe: Recipe,
    out: Path,
    *,
    data: TextData | None = None,  # None: prepared text
    resume: bool = False,
    display: str = "auto",
) -> dict[str, Any]:
    """Trains by a recipe into a directory; returns the content of run.json."""
    device, data = pick_device(recipe.engine.device), data or TextData()
    with distributed(device) as group, settings(device):
        out = Path(out)
        resume = bool(group.share([float(resume or started_again(recipe, out))])[0])
        check_place(out, resume, group, data.beforehand)
        recipe = resumed(recipe, out) if resume else recipe
        check_loggers(recipe.log)
        group.barrier()
        with RunLock(out) if group.first else nullcontext():
            display = display if group.first else "silent"
            shown = watch(display)
            if not resume:
                shown.note(f"unlike the defaults: {', '.join(recipes.differences(recipe))}")
            group.first_does(lambda: data.verify(recipe, shown.note), FormatError)
            plan = prepare(recipe, group, device, shown.note, resumed=resume, data=data)
            return TrainingRun(plan, out, group, shown, data.resume_command(out)).go(resume)


class TrainingRun:
    """Runs the steps, validations and checkpoints of a plan, and exports the model at the end."""

    def __init__(
        self,
        plan: TrainingPlan,
        out: Path,
        group: ProcessGroup,
        shown: ProgressDisplay,
        resume: str,
    ) -> None:
        self.plan, self.out, self.watch = plan, out, shown
        self.group = plan.loop.group  # `group`, which may read the data together
        self.resume_command = resume
        self.recipe: FrozenConfig = plan.recipe
        self.loop: Loop = plan.loop
        self.device = plan.loop.device
        self.valid: Objective | None = plan.valid
        keep = max(self.recipe.checkpoint.keep, self.recipe.checkpoint.average or 0)
        self.checkpoints = Checkpoints(out / "checkpoints", keep)
        if group.first:
            self.checkpoints.clean()
        self.metrics = Metrics(
            out / METRICS, enabled=group.first, log=self.recipe.log, recipe=self.recipe.table()
        )
        self.saved_at = time.monotonic()
        self.saved_step = -1
        self.outcome = "done"
        self.first_step = 0  # that this process learns is the one after it
        self.final: dict[str, float] = {}  # of the exported model, on the whole split

    def go(self, resume: bool) -> dict[str, Any]:
        steps = self.recipe.budget.steps
        if resume:
            self.restore()
        self.first_step = self.loop.progress.step
        if self.group.first:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / MANIFEST).unlink(missing_ok=True)  # it is written anew at the end
            recipes.write(self.recipe, self.out / RECIPE)
            self.metrics.begin(self.loop.progress.step)
        self.watch.note(f"the whole recipe is in {self.out / RECIPE}")
        self.watch.start(self.plan.facts | {"out": str(self.out)})
        with StopSignal() as stop:
            try:
                self.steps(steps, stop)
            except Interrupted:
                self.end_early(stop.asked)
            except Diverged as error:
                raise self.diverged(error) from None
            finally:
                self.plan.batches.close()
                self.metrics.close()
                self.watch.stop()  # what follows is no longer part of the picture
        return self.finish()

    def steps(self, steps: int, stop: StopSignal) -> None:
        self.validate_if_due(stop)  # a run that was stopped before this one was done
        self.lose_patience()
        last = FOREVER if self.recipe.budget.clock else steps
        while self.unfinished() and self.outcome == "done":
            metrics = self.loop.step(last, lambda: [bool(stop.asked), self.save_due(), self.late()])
            self.record(metrics)
            self.reach_milestones()  # before any checkpoint: a killed run repeats it
            stopping, due, late = metrics.flags
            self.validate_if_due(stop)
            if due or (stopping and self.unfinished()):
                self.save()
            if stopping and self.unfinished():
                self.end_early(stop.asked)
            elif late:
                self.outcome = "out of time"
        self.save()

    def unfinished(self) -> bool:
        """Returns whether the run still has steps (or, with `budget.clock`, time) left."""
        budget, progress = self.recipe.budget, self.loop.progress
        if budget.clock and budget.minutes:
            return progress.seconds < budget.minutes * 60
        return progress.step < budget.steps

    def record(self, metrics: StepMetrics) -> None:
        """Records the metrics of a step; a long run writes only every n-th step to the file."""
        progress, steps = self.loop.progress, self.recipe.budget.steps
        speed = progress.tokens / max(progress.seconds, 1e-9)
        record = {
            "step": progress.step,
            "loss": metrics.loss,
            "parts": metrics.losses if len(metrics.losses) > 1 else {},
            "lr": metrics.lr,
            "norm": metrics.norm,
            "tokens": progress.tokens,
            "seconds": progress.seconds,
            "tokens_per_second": speed,
        }
        left = progress.seconds / progress.step * (steps - progress.step)
        if self.recipe.budget.clock:
            left = (self.recipe.budget.minutes or 0.0) * 60 - progress.seconds
        done = self.plan.step_flops * progress.step
        share = peak_share(done, progress.seconds, self.plan.peak)
        if progress.step % max(1, steps // 2000) == 0 or progress.step == steps:
            self.metrics.write(record)
        self.watch.step(
            record
            | {"steps": steps, "left": left, "peak_share": share, "memory": memory()["resident"]}
        )

    # -- validation

    def validate_if_due(self, stop: StopSignal) -> None:
        progress, every = self.loop.progress, self.recipe.validation.every
        last = not self.unfinished()
        due = progress.step > 0 and (last or progress.step % every == 0)
        if self.valid is None or not due or progress.validated == progress.step:
            return
        figures, badness = validate(
            self.loop.engine.evaluator(),
            self.valid,
            self.group,
            self.device,
            self.recipe.engine.precision,
            samples=self.recipe.validation.samples,
            stopping=lambda: bool(stop.asked),
        )
        progress.validated = progress.step
        name, value = next(iter(figures.items()))
        rank, best = self.rank(value, badness), self.rank(progress.best, progress.least)
        better = rank >= best
        progress.waited = 0 if rank > best else progress.waited + 1
        if better:
            progress.best, progress.least, progress.best_step = value, badness, progress.step
            progress.best_by = name if self.recipe.validation.best == "metric" else "loss"
        self.metrics.write({"step": progress.step, "tokens": progress.tokens, "valid": figures})
        self.watch.valid({"step": progress.step, "best": better, **figures})
        if better:
            self.save(best=True)
        self.lose_patience()

    def rank(self, value: float | None, loss: float | None) -> tuple[float, ...]:
        """The higher, the better: by the metric and then by the loss, or by the loss alone. Of two
        models that are equal in all of it the later one is kept.
        """
        if value is None or loss is None or self.valid is None:
            return ()  # below everything
        metric = value if self.valid.better(1.0, 0.0) else -value
        chosen = (metric, -loss) if self.recipe.validation.best == "metric" else (-loss,)
        return tuple(-math.inf if math.isnan(part) else part for part in chosen)

    def lose_patience(self) -> None:
        patience = self.recipe.validation.patience
        if patience and self.loop.progress.waited >= patience:
            self.outcome = f"stopped early: no better validation in {patience}"

    # -- checkpoints

    def save_due(self) -> bool:
        plan, step = self.recipe.checkpoint, self.loop.progress.step + 1
        if plan.every:
            return step % plan.every == 0
        return self.group.first and time.monotonic() - self.saved_at > plan.minutes * 60

    def late(self) -> bool:
        """Tells whether a budget in minutes, which was converted to steps, takes too long."""
        minutes = self.recipe.budget.minutes
        if not minutes or self.recipe.budget.clock:
            return False
        return self.loop.progress.seconds > minutes * 60 * LATE

    def save(self, reason: str = "", best: bool = False) -> None:
        step = self.loop.progress.step
        if step == self.saved_step and not (reason or best):
            return
        facts = {"progress": self.loop.facts(), "reason": reason}
        files = {name: tensors for name, tensors in self.loop.tensors().items() if tensors}
        self.metrics.flush()
        self.group.first_does(
            lambda: self.checkpoints.save(step, files, facts, best=best),
            StorageError,
            partial(self.gather, files),
        )
        self.saved_at, self.saved_step = time.monotonic(), step

    def reach_milestones(self) -> None:
        """Saves the model if so many words were read as `checkpoint.at_words` names."""
        for words in self.plan.milestones.get(self.loop.progress.step, ()):
            place = self.out / f"words-{short_count(words)}"
            weights = {"weights": self.loop.tensors()["weights"]}
            self.group.first_does(
                partial(self.save_weights, weights, place),
                StorageError,
                partial(self.gather, weights),
            )
            self.watch.note(f"{words:,} words were read: the model is {place}")

    def save_weights(self, files: Files, place: Path) -> None:
        plain, tensors = self.plain_model(), whole(files)
        names = aligned(files["weights"])
        plain.load_state_dict(dict(zip(names, tensors, strict=True)))
        self.save_model(plain, place)

    def gather(self, files: Files) -> None:
        """Runs in all other processes while the first one writes weights that are sharded."""
        for _ in whole(files) if self.loop.engine.sharded else ():
            pass

    def restore(self) -> None:
        saved = self.newest()
        if saved is None:
            self.watch.note("no checkpoint was written yet: starting from the beginning")
            return
        names = [name for name in STORED if f"{name}.safetensors" in saved.files]
        with naming(file := saved.path / checkpoint.FACTS):
            kinds = {"progress": dict[str, Any]}
            check_kinds(saved.facts, kinds, file.name, advice=checkpoint.ADVICE)
            progress = asdict(from_table(RunProgress, saved.facts["progress"]))
        self.loop.restore({name: saved.tensors(name) for name in names}, progress)
        self.saved_step = saved.step
        self.watch.note(f"going on after step {saved.step:,}")

    def newest(self) -> SavedCheckpoint | None:
        """Returns the newest intact checkpoint, the same in every process: the first one looks for
        it."""
        latest: list[SavedCheckpoint | None] = []
        self.group.first_does(lambda: latest.append(self.checkpoints.latest()), StorageError)
        saved = latest[0] if latest else None
        step, again = self.group.share(
            [*map(float, (-1, 0) if saved is None else order(saved.path))]
        )
        if self.group.first or step < 0:
            return saved
        return SavedCheckpoint.open(self.checkpoints.entry(int(step), int(again)), verify=False)

    def end_early(self, signal: str) -> None:
        self.save(signal)
        self.outcome = "interrupted"

    def diverged(self, error: Diverged) -> Diverged:
        """Keeps the last good state: the weights before a step without a number, and the best model
        if there is one. Weights that have exploded are not saved.
        """
        if self.loop.progress.risen < RISEN:
            self.save("diverged")
        if self.loop.progress.best is None:
            return error
        self.outcome = "diverged"
        self.finish()
        return Diverged(f"{error}. {self.out} holds {self.which_model().rstrip(',')}")

    # -- the end

    def finish(self) -> dict[str, Any]:
        if self.group.first:
            self.export()
        facts = self.facts()
        if self.group.first:
            write_json(self.out / FACTS, facts)
            from regard.training.report import write_card, write_report

            write_report(self.out)
            write_card(self.out)
            write_manifest(self.out)
        self.group.barrier()
        self.watch.stop(self.last_words())
        return facts

    def facts(self) -> dict[str, Any]:
        progress = self.loop.progress
        return self.plan.facts | {
            "valid": self.final,
            "out": str(self.out),
            "outcome": self.outcome,
            "progress": asdict(progress),
            "best": self.best_facts(),
            "peak_memory": memory()["peak"],
            "world": self.group.world,
            "first": self.group.first,
        }

    def best_facts(self) -> dict[str, Any] | None:
        """Which step was kept, by what, and on how many samples it was judged."""
        progress = self.loop.progress
        if self.valid is None or progress.best is None:
            return None
        samples = min(self.recipe.validation.samples, len(self.valid))
        return {
            "step": progress.best_step,
            "value": progress.best,
            "by": progress.best_by,
            "samples": samples,
        }

    def export(self) -> None:
        """Saves the best model (or the mean of the last ones) as a model directory."""
        plain, hooks = self.plain_model(), hooks_of(self.plan.objective)
        count = self.recipe.checkpoint.average or 0
        chosen = self.checkpoints.best() or self.checkpoints.latest()
        if chosen is None:
            raise RegardError(f"{self.checkpoints.directory} holds no checkpoint")
        if count > 1:
            last = self.checkpoints.intact()[-count:]
            plain.load_state_dict(mean([saved.tensors("weights") for saved in last]))
        else:
            plain.load_state_dict(chosen.tensors("weights"))
        valid = None if self.outcome == "interrupted" else self.valid
        hooks.on_train_end(plain.eval().to(self.device), valid)
        self.save_model(plain, self.out)
        hooks.save_extras(plain, self.out)
        if valid is not None:
            learner = TrainModule(plain, self.plan.objective)
            precision = self.recipe.engine.precision
            self.final = validate(learner, valid, ProcessGroup(), self.device, precision).figures

    def plain_model(self) -> Any:
        """Returns a model of the run's shape, whose weights are to be loaded."""
        plain = model_for(self.recipe, self.plan.objective)
        return plain.double() if self.recipe.engine.precision == "fp64" else plain

    def save_model(self, plain: Any, place: Path) -> None:
        """Writes a model directory, with what the model's own source and its objective add."""
        objective = self.plan.objective
        source, generation = {}, None
        base = Path(self.recipe.model)
        if (base / "config.json").is_file():
            end = objective.corpus.special.end
            source = ended_by(read_config(base), end)
            generation = directory.read_generation_config(base)
            generation = generation if generation is None else ended_by(generation, end)
        source |= hooks_of(objective).hf_config()
        directory.save(plain, place, objective.corpus.tokenizer, source, generation)

    def last_words(self) -> str:
        step, steps = self.loop.progress.step, self.recipe.budget.steps
        if self.outcome == "interrupted":
            return (
                f"stopped after step {step:,} of {steps:,}; everything is saved. "
                f"Go on with: regard {self.resume_command}"
            )
        shown = f"; on the whole validation text {figures(self.final)}" if self.final else ""
        after = f"{self.outcome}: {counted(step, 'step')}{shown}"
        where = f"{self.which_model()} is in {self.out}"
        if step > self.first_step:
            return f"{after}; {where}"
        more = f"regard {self.resume_command} --steps N, with more than {step:,}, prolongs it"
        return f"{after}; {where}; it was finished before, so nothing was learned: {more}"

    def which_model(self) -> str:
        """Says which of the run's models was kept, and on how many samples it was judged."""
        count, best = self.recipe.checkpoint.average or 0, self.best_facts()
        if count > 1:
            return f"the mean of the last {count} checkpoints"
        if best is None:
            return "the model"
        what = "lowest loss"
        if best["by"] != "loss":
            what = f"best {best['by'].replace('_', ' ')}, {number(best['value'])},"
        return (
            f"the model of step {best['step']:,}, which had the {what} on "
            f"{counted(best['samples'], 'validation sample')},"
        )


def check_place(
    out: Path, resume: bool, group: ProcessGroup, beforehand: Collection[str] = TextData.beforehand
) -> None:
    """Refuses a directory that holds more than `beforehand`, or a resume without a run."""
    if resume:
        if not (out / RECIPE).is_file():
            raise ConfigError(f"{out} has no {RECIPE}; there is no run to go on with")
    elif out.exists() and not is_fresh_run_dir(out, beforehand) and group.first:
        advice = "go on with --resume, or " if (out / RECIPE).is_file() else ""
        raise ConfigError(f"{out} exists already; {advice}choose another --out")


def is_fresh_run_dir(out: Path, beforehand: Collection[str]) -> bool:
    """Tells whether a directory is empty, or holds only what may be there before a run."""
    if not out.is_dir():
        return False
    return {file.name for file in out.iterdir() if not file.name.startswith(".")} <= {*beforehand}


def started_again(recipe: Recipe, out: Path) -> bool:
    """Tells whether torchrun restarted the same command, which means that the run must resume."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or not (out / RECIPE).is_file():
        return False
    before = recipes.read_recipe(out / RECIPE)
    same = ("model", "data", "size", "seed")
    return all(getattr(before, name) == getattr(recipe, name) for name in same)


def resumed(recipe: Recipe, out: Path) -> Recipe:
    """Returns the resolved recipe of a run; its budget may grow, and other processes may split its
    layers."""
    recipes.read_resolved(out / RECIPE)  # a recipe that lost a part would go on in another way
    before = recipes.read_recipe(out / RECIPE)
    tensor = before.engine.tensor if recipe.engine.tensor is None else recipe.engine.tensor
    steps = recipe.budget.steps or before.budget.steps
    return replaced(before, budget={"steps": steps}, engine={"tensor": tensor})


def pick_device(name: str | None) -> torch.device:
    if name is not None:
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"engine.device is {name!r}, which cannot be used here ({reason}); choose cpu, or "
                "leave it out"
            ) from None
        return device
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@contextmanager
def settings(device: torch.device) -> Iterator[None]:
    """Makes a run reproducible, and large tensors cheap; restores the settings afterwards."""
    quick_malloc()
    before = torch.are_deterministic_algorithms_enabled()
    extra: Any = torch.utils.deterministic
    fill = extra.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    extra.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        extra.fill_uninitialized_memory = fill


@contextmanager
def distributed(device: torch.device) -> Iterator[ProcessGroup]:
    """Joins the processes that torchrun started, and leaves them at the end if it joined them."""
    before = is_joined()
    group = join(device)
    try:
        yield group
    except BaseException:
        leave(together=False)
        raise
    if not before:
        leave(together=True)
