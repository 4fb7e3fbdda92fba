"""`regard distill`: makes a student from a teacher and trains it, as one run.

RUN/
  first/distill.json   the options and the recipe, to resume with
  first/teacher        --vocab-size: the teacher with a smaller vocabulary
  first/student        the student before training
  first/pairs          --sequence-level: the sources, and the teacher's translations
  first/layers         TinyBERT: the student that has learned its teacher's layers
  config.json, …       the student, as in any run
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.core.atomic_dir import write_manifest
from regard.core.errors import ConfigError, FormatError, RegardError, UnknownName
from regard.core.files import copy_file
from regard.core.processes import RunLock
from regard.data.corpus import MARKER, Corpus, read_marker
from regard.formats.directory import describe, load, locate
from regard.methods.distill.learned import inner_of
from regard.methods.distill.objective import STYLES
from regard.methods.distill.parts import is_text_objective
from regard.methods.distill.student import check_directory, check_shape, make_student, shape_of
from regard.methods.distill.teacher import check_tokenizer
from regard.methods.options import DistillOptions as Asked
from regard.methods.runs import (
    BEFOREHAND,
    Facts,
    StageInterrupted,
    check_one_process,
    model_facts,
    part,
    read_plan,
    rehearse,
    run,
    runner,
    write_plan,
)
from regard.models import FAMILIES
from regard.objectives import learns_to_write
from regard.objectives import objective as find_objective
from regard.tasks.labeled import TASK
from regard.training import recipe as recipes
from regard.training.build import is_directory
from regard.training.data import learned
from regard.training.parallel import ProcessGroup
from regard.training.progress import watch
from regard.training.recipe import Recipe, replaced
from regard.training.recipe_parts import Budget
from regard.training.run import RECIPE, check_place

FIRST, PLAN = "first", "distill.json"
PAIRS, LAYERS = "pairs", "layers"
NEVER = 2**31 - 1  # steps between validations: it validates only at the end
USUAL = "hinton"  # the style for labeled examples and pairs; for text it is distilbert
TINY = "tinybert"
EPOCHS = 10.0  # of the stage that learns a task's layers, unless a budget is given
# TinyBERT on a task has two stages; each stage drops the options that are for the other stage.
OF_LAYERS = ("hidden", "attention", "embedding", "cosine")
OF_ANSWERS = ("soft", "hard", "temperature", "only")
# The command line's names for fields of a recipe's examples.
OPTIONS = {"task": "--task", "valid": "--valid", "skip": "--skip", "fields": "--field",
           "format": "--format", "header": "--header"}  # fmt: skip

Settings = dict[str, dict[str, Any]]

# The settings of the papers, for what the recipe leaves open. DistilBERT's code masks rare words
# more often and freezes the positions. Here the objective chooses the masks, so that the student's
# loss can be compared with its teacher's (objective.rare=0.7 is DistilBERT's); all weights learn.
DISTILBERT: Settings = {
    "optimizer": {
        "name": "adamw", "lr": 5e-4, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.0,
        "grad_clip": 5.0,
    },
    "schedule": {"name": "linear", "warmup": 0.05},
}  # fmt: skip
TINY_LAYERS: Settings = {
    "optimizer": {"name": "adamw", "lr": 5e-5, "weight_decay": 0.01},
    "schedule": {"name": "constant", "warmup": 0.0},
    "validation": {"every": NEVER},
}
TINY_ANSWERS: Settings = {
    "optimizer": {"name": "adamw", "lr": 3e-5, "weight_decay": 0.01},
    "schedule": {"name": "linear", "warmup": 0.1},
}


def distill(
    recipe: Recipe,
    out: Path,
    plan: Asked | None = None,
    *,
    resume: bool = False,
    display: str = "auto",
) -> Facts:
    """Makes the student and trains it. Returns the content of run.json, and the sizes of both
    models.

    `recipe.data` is prepared text, prepared pairs or a file of labeled examples. What the recipe
    says about its model is about the student.
    """
    out = Path(out)
    file = out / FIRST / PLAN
    if resume:
        steps = recipe.budget.steps
        plan, recipe, _ = read_plan(file, Asked, "there is no distillation to resume")
        if steps:
            recipe = replaced(recipe, budget=Budget(steps=steps))
        return DistillRun(plan, display, steps).go(recipe, out)
    if plan is None:
        raise ConfigError("the plan is missing; a new distillation needs a teacher and a student")
    check(recipe, plan)
    check_place(out, False, ProcessGroup(), BEFOREHAND)
    if file.is_file():
        raise ConfigError(f"{out} exists already; resume it with --resume, or choose another --out")
    with remove_on_error(out):
        write_plan(file, plan, recipe)
        return DistillRun(plan, display).go(recipe, out)


@contextmanager
def remove_on_error(out: Path) -> Iterator[None]:
    """Removes the new directory if an error is raised before anything was learned or written, so
    that the corrected command can be given again."""
    there, first = out.exists(), out / FIRST
    ours = not first.exists()
    first.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except RegardError:
        dear = out / RECIPE, first / LAYERS / RECIPE, first / f"{PAIRS}.jsonl"
        if ours and not any(file.exists() for file in dear):
            shutil.rmtree(first)
            if not there:
                with suppress(OSError):
                    out.rmdir()
        raise


def check(recipe: Recipe, plan: Asked) -> None:
    """Raises an error at once for options that do not fit the teacher, the student or the data."""
    check_one_process(
        "one process makes the student; start with one process, and when the training has begun, "
        "--resume may use several"
    )
    teacher = teacher_of(plan.teacher)
    facts = model_facts(teacher)
    if plan.style and plan.style not in STYLES:
        raise UnknownName("style of distillation", plan.style, STYLES)
    prepared = Path(recipe.data, MARKER).is_file()
    if is_directory(plan.student):
        # Tokens that a task adds to the vocabulary are added to the student's when it learns.
        check_directory(Path(plan.student), teacher, words=prepared)
    else:
        check_shape(plan.teacher, facts.config, facts.extensions, shape_of(plan.student))
    if prepared:
        check_prepared(recipe, plan)
    elif plan.sequence:
        raise no_pairs(recipe)
    elif FAMILIES[facts.family].writes_tasks:
        raise ConfigError(
            f"{plan.teacher} learned its task as text; give the prepared pairs that it learned "
            f"from, such as {Path(plan.teacher, 'data')}"
        )
    if plan.vocab_size and is_directory(plan.student):
        raise ConfigError("the student has its vocabulary already; leave --vocab-size out")
    inner_of(recipe, teacher)


def check_prepared(recipe: Recipe, plan: Asked) -> None:
    """Raises ConfigError for options that are only for labeled examples."""
    if plan.sequence and read_marker(Path(recipe.data)).get("kind") != "pairs":
        raise no_pairs(recipe)
    if plan.vocab_size:
        raise ConfigError(
            f"{recipe.data} is tokenized with the teacher's vocabulary, which cannot change any "
            "more; leave --vocab-size out, which is for labeled examples"
        )
    usual = Recipe().examples
    for each in fields(usual):
        if getattr(recipe.examples, each.name) != getattr(usual, each.name):
            option = OPTIONS.get(each.name, f"examples.{each.name}")
            raise ConfigError(
                f"{recipe.data} is prepared data, and {option} is for a file of labeled examples; "
                "leave it out, or give a file of labeled examples as --data"
            )


def no_pairs(recipe: Recipe) -> ConfigError:
    return ConfigError(
        f"--sequence-level learns the teacher's translations of sources, and {recipe.data} holds "
        "no prepared pairs; prepare them with 'regard prepare --pairs'"
    )


def teacher_of(name: str) -> Path:
    """Returns the directory of a teacher. Its name may be that of a model in the hub's cache."""
    try:
        return locate(name, False)
    except FormatError:
        if Path(name).exists():
            raise
        raise ConfigError(
            f"there is no model {name}; give a run or a model directory as the teacher"
        ) from None


class DistillRun:
    """Runs the stages before the training and then the training itself; each stage is done once and
    can be resumed."""

    def __init__(self, plan: Asked, display: str, steps: int | None = None) -> None:
        self.plan, self.display = plan, display
        self.steps = steps  # a larger budget for a resumed run; None: its own budget

    def go(self, recipe: Recipe, out: Path) -> Facts:
        if (out / RECIPE).is_file():  # resumes with the recipe in the run's directory
            budget = Recipe(engine=recipe.engine, budget=Budget(steps=self.steps))
            facts = run(budget, out, resume=True, display=self.display)
        else:
            try:
                with RunLock(out):  # the run itself takes the lock again
                    own = self.before(recipe, out / FIRST)
            except StageInterrupted as stopped:
                note = f"stopped before the run itself; resume with: regard distill --resume {out}"
                watch(self.display).stop(note)
                return stopped.facts
            facts = run(own, out, display=self.display)
        if facts["first"]:
            keep_task(teacher_of(self.plan.teacher), out)
        theirs, ours = (describe(path)["parameters"] for path in (self.plan.teacher, out))
        return facts | {"distilled": {"teacher": theirs, "student": ours, "share": ours / theirs}}

    def before(self, begun: Recipe, first: Path) -> Recipe:
        """Does the stages before the run and returns the recipe of the run. Before an expensive
        stage, it raises the errors that the later stages would raise."""
        plan = self.plan
        teacher = teacher_of(plan.teacher)  # it stands for the model until the student exists
        of, options, recipe = inner_of(replaced(begun, model=str(teacher)), teacher)
        if plan.vocab_size:
            teacher = self.trimmed(recipe, teacher, first / "teacher")
        student = plan.student
        if not is_directory(student):
            student = str(self.student(recipe, teacher, first / "student"))
        stages = self.stages(replaced(recipe, model=student), teacher, of, options)
        if plan.sequence or len(stages) > 1:
            for stage in stages:
                rehearse(stage)
        if plan.sequence:
            place = self.pairs(recipe, teacher, first / PAIRS)
            stages = [replaced(stage, data=str(place)) for stage in stages]
        *before, last = stages
        for layers in before:
            watch(self.display).note("the student learns the layers first, then the logits")
            part(layers, first / LAYERS, runner(self.display))
            last = replaced(last, model=str(first / LAYERS))
        return last

    def stages(
        self, recipe: Recipe, teacher: Path, of: str, options: dict[str, Any]
    ) -> list[Recipe]:
        """Returns the recipe with its objective and with the learning rates of the style's paper.
        For TinyBERT on a task, a first recipe learns the layers, with the given budget."""
        plan = self.plan
        if plan.sequence and not plan.style:
            return [replaced(recipe, objective={"name": of} | options | recipe.objective)]
        of_text = is_text_objective(of)
        running = of_text and find_objective(of).stretches
        usual = plan.style or ("distilbert" if running else USUAL)
        inside = options | dict(recipe.objective.get("options", {}))
        table = {"of": of, "teacher": str(teacher), "style": usual}
        whole = {"name": "distill"} | table | recipe.objective | {"options": inside}
        recipe = replaced(recipe, objective=whole)
        if whole["style"] == "distilbert" and of_text:
            return [fill_open(recipe, DISTILBERT)]
        if whole["style"] != TINY:
            return [recipe]
        if of_text:  # general distillation learns the layers alone (Jiao et al. 2020, 3.2)
            return [fill_open(recipe, TINY_LAYERS)]
        # The logits are not learned yet, so their score must not end the stage or choose its model.
        layers = replaced(
            fill_open(recipe, TINY_LAYERS),
            objective=without(whole, OF_ANSWERS),
            validation={"every": NEVER, "patience": None},
            budget=Budget(epochs=EPOCHS) if recipe.budget == Budget() else recipe.budget,
        )
        answers = without(whole, OF_LAYERS) | {"style": "tinybert-answers"}
        return [layers, fill_open(replaced(recipe, objective=answers), TINY_ANSWERS)]

    def trimmed(self, recipe: Recipe, teacher: Path, place: Path) -> Path:
        from regard.methods.prune.vocabulary import trim
        from regard.tasks.as_text import divided

        if not (place / "config.json").is_file():
            examples = divided(recipe, "silent").train
            texts = (text for example in examples for _, text in example.parts())
            words = self.plan.vocab_size or 0
            before, after = trim(load(teacher), texts, words, place)["words"]
            watch(self.display).note(f"the vocabulary keeps {after:,} of {before:,} tokens")
        return place

    def student(self, recipe: Recipe, teacher: Path, place: Path) -> Path:
        if not (place / "config.json").is_file():
            sizes = make_student(load(teacher), shape_of(self.plan.student), place, recipe.seed)
            how = "layers of its teacher" if sizes["inherited"] else "random weights"
            watch(self.display).note(
                f"the student has {sizes['student']:,} parameters, its teacher "
                f"{sizes['teacher']:,}; it starts with {how}"
            )
        return place

    def pairs(self, recipe: Recipe, teacher: Path, place: Path) -> Path:
        from regard.core.progress import Progress
        from regard.methods.distill.sequence import teach_pairs

        if (place / MARKER).is_file():
            return place
        data, progress = Path(recipe.data), Progress(quiet=self.display == "silent")
        check_tokenizer(teacher, Corpus.open(data, "train"))
        precision = "bf16" if recipe.engine.precision == "bf16" else "own"

        def tell(done: int, total: int) -> None:
            if not progress.quiet:
                progress.say(f"the teacher has written {done:,} of {total:,} targets")

        try:
            teach_pairs(
                load(teacher),
                data,
                place,
                beams=self.plan.num_beams,
                precision=precision,
                watch=tell,
            )
        finally:
            progress.close()
        return place


def keep_task(teacher: Path, out: Path) -> None:
    """Copies the teacher's task.json to a student that answers in text, so that it gets the same
    prompts."""
    objective = recipes.read(out / RECIPE)["objective"]
    writes = learns_to_write(learned(objective))
    if writes and (teacher / TASK).is_file() and not (out / TASK).is_file():
        copy_file(teacher / TASK, out / TASK)
        write_manifest(out)


def without(table: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}


def fill_open(recipe: Recipe, table: Settings) -> Recipe:
    """Returns the recipe with the table's values in the fields that it leaves open."""
    return replaced(
        recipe,
        **{
            name: {k: v for k, v in values.items() if getattr(getattr(recipe, name), k) is None}
            for name, values in table.items()
        },
    )
