"""The commands `regard train`, `finetune`, `distill` and `align`, which train by a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from regard.cli import layouts
from regard.cli.guess import check_order, check_there
from regard.cli.options import AskedFor, Command
from regard.cli.output import say
from regard.core.errors import ConfigError
from regard.core.options import DATA, OUT, Argument, Option, PartialOptions
from regard.core.tables import Table
from regard.data.corpus import read_marker
from regard.data.knowledge.options import KnowledgeOptions
from regard.methods.options import AlignOptions, DistillOptions, FinetuneOptions
from regard.training import recipe as recipes
from regard.training.recipe import Recipe

PATIENCE = 20.0  # the longest step, in seconds, that a dry run measures
FREE = (
    "budget.steps",
    "engine.device",
    "engine.tensor",
)  # the recipe keys that --resume may change
BESIDE_RESUME = {"--resume", "--quiet", "--json", "--dry-run", "--steps", "--device"}
OF_A_RUN = (
    "a run continues with its own recipe, in which only the steps may grow (--steps N); leave it "
    "out, or start a new run"
)
LEARNING = ("seed", "log", "batch", "budget", "optimizer", "schedule", "validation", "engine")
MODEL = Argument("MODEL", "A run or a model directory; with --resume the run to continue.")
Settings = Annotated[
    Sequence[str],
    Argument("[KEY=VALUE]…", "Set any key of the recipe; 'regard recipes --keys' lists them."),
]
Data = Annotated[str | None, DATA]
LoraWords = Annotated[
    str | None,
    Option("Train only LoRA adapters and the new head: rank=8,alpha=16,targets=query+value, or "
           "default.", "--lora", "OPTIONS"),
]  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """The options of every training run."""

    out: Annotated[Path | None, OUT] = None
    config: Annotated[
        str | None,
        Option("A recipe file in TOML, or the name of a recipe (regard recipes).", metavar="FILE"),
    ] = None
    resume: Annotated[bool, Option("Continue a run as if it had never stopped.")] = False
    dry_run: Annotated[
        bool, Option("Print the resolved recipe and its estimated cost; write nothing.")
    ] = False
    quiet: Annotated[bool, Option("Print no progress.")] = False

    @property
    def display(self) -> str:
        return "silent" if self.quiet else "auto"

    def place(self) -> Path:
        if self.out is None:
            raise ConfigError("--out is missing; give the directory that the run writes")
        return self.out

    def recipe(self, settings: Sequence[str] | Table, options: Table, named: Table) -> Recipe:
        """Returns the recipe with the changes of the command line. Options override KEY=VALUE."""
        base = recipes.read(recipes.find(self.config)) if self.config else {}
        changes = settings if isinstance(settings, dict) else recipes.overrides(settings)
        if "budget" in options or "budget" in changes:
            base.pop("budget", None)  # a new budget replaces the old one, such as its epochs
        return recipes.make(base, changes, options, without_open(named))

    def check_resume(self, typed: Sequence[str], settings: Table, path: str) -> None:
        """Refuses options that a resumed run would ignore."""
        if not self.resume:
            return
        if self.dry_run:
            raise ConfigError(
                f"--dry-run is for a new run; {path}/recipe.toml shows that of this one"
            )
        names = [name for name in typed if name not in BESIDE_RESUME]
        for table, values in settings.items():
            keys = [f"{table}.{key}" for key in values] if isinstance(values, dict) else [table]
            names += [key for key in keys if key not in FREE]
        if names:
            raise ConfigError(f"{names[0]} is given beside --resume, but {OF_A_RUN}")


def without_open(table: Table) -> Table:
    return {key: value for key, value in table.items() if value not in (None, "", [], {})}


def check_data(data: str) -> None:
    """Refuses a missing file, before anything heavy is imported."""
    if not data:
        raise ConfigError("--data is missing; give a file of labeled examples")
    for name in data.split(","):
        if not Path(data).exists():
            check_there("--data", name)


def train(
    model: Annotated[
        str,
        Argument("MODEL", "A family (gpt), a published size (gpt2), or a model directory to train "
                 "further; with --resume the run to continue."),
    ],
    data: Annotated[str, Argument("DATA", "A data directory of 'regard prepare'.")] = "",
    settings: Settings = (),
    *,
    changes: Annotated[Table, PartialOptions(Recipe, "size", "recipe", *LEARNING)],
    objective: Annotated[
        str | None,
        Option("The objective: causal, masked, span, …", metavar="NAME",
               default="that of the model's paper"),
    ] = None,
    run: RunOptions,
    typed: AskedFor,
) -> Table:  # fmt: skip
    """Train a model on prepared text, with its paper's own objective.

    A recipe decides everything about a run: a TOML file (--config), or KEY=VALUE after the data
    ('regard recipes --keys' lists the keys). Ctrl-C saves a checkpoint and stops; --resume
    continues, bit for bit.

    \b
    Examples:
      regard prepare builtin:python-docs --out text
      regard train gpt text --out my-gpt --size small --minutes 10
      regard train bert text --out my-bert --size tiny --seq-len 128 --lr 5e-4
      regard train my-gpt other-text --out my-gpt-2 --epochs 3 checkpoint.keep=5
      regard train gpt text --out deep --minutes 10 shape.layers=8 extensions.gates=true
      regard train --resume my-gpt
      torchrun --nproc-per-node 2 -m regard train gpt text --out my-gpt engine.parallel=fsdp
    """
    if data and "=" in data and not Path(data).exists():
        settings, data = [data, *settings], ""
    check_order("train", model, data)
    run.check_resume(typed, recipes.overrides(settings) | without_open({"data": data}), model)
    if run.resume:
        recipe, place = run.recipe(settings, changes, {}), Path(model)
    else:
        named = {"model": model, "data": data, "objective": without_open({"name": objective})}
        recipe = run.recipe(settings, changes, named)
        if not recipe.data:
            raise ConfigError("DATA is missing; give a directory of 'regard prepare' after MODEL")
        place = run.place()
        read_marker(Path(recipe.data))  # what is not there is noticed before torch is imported
    if run.dry_run:
        return plan_of(recipe)
    from regard.methods.runs import run as learn

    return learn(recipe, place, resume=run.resume, display=run.display)


def finetune(
    model: Annotated[str, MODEL],
    settings: Settings = (),
    *,
    data: Data = None,
    changes: Annotated[Table, PartialOptions(Recipe, "examples", "augment", *LEARNING)],
    stages: Annotated[Table, PartialOptions(FinetuneOptions)],
    knowledge: Annotated[Table, PartialOptions(KnowledgeOptions)],
    lora: LoraWords = None,
    run: RunOptions,
    typed: AskedFor,
) -> Table:
    """Fine-tune a model for a task with labeled examples, as its paper does.

    The input format and the learning rate are those of the paper. RUN is the fine-tuned model. With
    --folds the models are RUN/fold-1, …; each keeps its best validation, so that the mean of their
    figures is a little too good.

    \b
    Examples:
      regard finetune my-bert --task classify --data reviews.jsonl --out reviewer
      regard finetune my-bert --task tag --data train.conll --valid dev.conll --out tagger
      regard finetune my-bert --config bert-ner --data train.conll --out tagger
      regard finetune my-bert --task classify --data news.csv --field text=body --out sorter
      regard finetune my-t5 --task translate --data train.en,train.zh --out translator
      regard finetune my-xlnet --task answer --data squad.json --out reader --epochs 2 --lr 3e-5
      regard finetune my-bert --task classify --data few.csv --unlabeled many.txt --out reviewer
      regard finetune my-bert --task classify --data few.csv --augment synonyms,delete --out kind
      regard finetune my-bert --task tag --data train.conll --adapt 3 --out tagger
      regard finetune my-bert --task tag --data train.conll --out tagger optimizer.freeze_layers=6
      regard finetune my-bert --task tag --data train.conll --knowledge facts.tsv --out tagger
      regard finetune my-bert --task embed --data pairs.jsonl --lora rank=8 --out finder
      regard finetune --resume reviewer
    """
    from regard.data.knowledge.options import asked as asked_of
    from regard.data.knowledge.options import merged

    check_order("finetune", model, option="--data")
    words = recipes.overrides(settings)
    run.check_resume(typed, words, model)
    graph = asked_of(knowledge.get("graph", ""), knowledge.get("branches"), knowledge.get("mode"),
                     knowledge.get("rules", []))  # fmt: skip
    named = without_open({"knowledge": merged(graph, words)})
    options = changes | without_open({"objective": named}) | adapters_in(lora)
    recipe = run.recipe(words, options, {"data": data, "model": "" if run.resume else model})
    chosen, place = FinetuneOptions.of(stages), Path(model)
    if not run.resume:
        if not recipe.examples.task:
            raise ConfigError("--task is missing; give a task, such as --task classify")
        check_data(recipe.data)
        place = run.place()
        check_extras(recipe)
    if run.dry_run:
        return plan_of_task(recipe, chosen, place)
    from regard.methods.finetune.run import finetune as learn

    return learn(recipe, place, stages=chosen, resume=run.resume, display=run.display)


def distill(
    teacher: Annotated[
        str,
        Argument("TEACHER", "A run or a model directory; with --resume the run to continue."),
    ],
    settings: Settings = (),
    *,
    data: Annotated[
        str | None,
        Option("A data directory of 'regard prepare' (text or pairs), or labeled examples for a "
               "teacher that was fine-tuned for a task.", metavar="FILE"),
    ] = None,
    method: Annotated[Table, PartialOptions(DistillOptions)],
    changes: Annotated[Table, PartialOptions(Recipe, "examples", *LEARNING)],
    run: RunOptions,
    typed: AskedFor,
) -> Table:  # fmt: skip
    """Train a small model, the student, on the outputs of a large one, the teacher.

    RUN is the student, a model like any other. Without --method, tasks and pairs are learned from
    softened outputs (Hinton et al. 2015), and text as DistilBERT learned it (Sanh et al. 2019).
    objective.temperature=4, objective.hidden=1 and so on change the parts of the loss. A student
    must not be wider or deeper than its teacher.

    \b
    Examples:
      regard distill my-bert --student layers=6 --data text --out small-bert --epochs 3
      regard distill my-gpt --student layers=4 --data text --method hinton --out small-gpt
      regard distill reviewer --student layers=3 --data reviews.jsonl --out small-reviewer
      regard distill reviewer --student layers=3 --vocab-size 15000 --data reviews.jsonl --out tiny
      regard distill tagger --student layers=2,width=128,heads=2,ffn_size=512 --method tinybert \\
        objective.attention=0 --data train.conll --out small-tagger
      regard distill translator --student layers=2 --data pairs --sequence-level --out quick
      regard distill --resume small-bert
    """
    check_order("distill", teacher, option="--data")
    words = recipes.overrides(settings)
    run.check_resume(typed, words, teacher)
    recipe, place = run.recipe(words, changes, {"data": data}), Path(teacher)
    options = None
    if not run.resume:
        if not method.get("student"):
            raise ConfigError("--student is missing; give its shape, such as --student layers=6")
        if not recipe.data:
            raise ConfigError("--data is missing; give prepared text, prepared pairs, or a file of "
                              "labeled examples")  # fmt: skip
        check_data(recipe.data)
        place = run.place()
        if "num_beams" in method and not method.get("sequence"):
            raise ConfigError(
                f"--num-beams is {method['num_beams']}, which only --sequence-level uses"
            )
        if run.dry_run:
            raise ConfigError(
                "--dry-run is not for a distillation, which builds its student first; leave it out"
            )
        options = DistillOptions(teacher, **method)
    from regard.methods.distill.run import distill as learn

    return learn(recipe, place, options, resume=run.resume, display=run.display)


def align(
    model: Annotated[str, MODEL],
    settings: Settings = (),
    *,
    method: AlignOptions,
    data: Annotated[
        str | None,
        Option("Records with prompt, chosen and rejected: jsonl, csv, tsv, or hub:NAME; grpo needs "
               "only prompts.", metavar="FILE"),
    ] = None,
    changes: Annotated[Table, PartialOptions(Recipe, "examples", "-examples.task",
     "-examples.classes",
                                    *LEARNING)],
    run: RunOptions,
    typed: AskedFor,
) -> Table:  # fmt: skip
    """Tune a causal model (gpt, transformer-xl, lstm, longformer-characters) with preferences of
    people; --method reward trains a model that scores replies instead (gpt).

    A prompt is a text, or a list of turns; a model that was trained on dialogues reads a text as a
    turn. RUN is a model like any other, for 'regard generate' and 'regard chat'. grpo generates
    replies and maximizes their reward: watch 'kl', the distance from the first model, and read some
    replies, because a model learns to cheat if the reward allows it.

    \b
    Examples:
      regard check pairs.jsonl --task prefer --model talker
      regard align talker --data pairs.jsonl --out polite
      regard align talker --data pairs.jsonl --method ipo --beta 0.2 --out polite
      regard align talker --data pairs.jsonl --out polite objective.smoothing=0.1
      regard align talker --data pairs.jsonl --method reward --out judge
      regard align talker --data prompts.txt --method grpo --reward judge --out better
      regard align talker --data prompts.txt --method grpo --reward contains:thanks --out thankful
      regard align --resume better
    """
    check_order("align", model, option="--data")
    words = recipes.overrides(settings)
    run.check_resume(typed, words, model)
    options = changes | without_open({"objective": method.objective()})
    place = Path(model) if run.resume else run.place()
    if not run.resume:
        check_data(data or "")
    from regard.methods.preference.run import check, prefer, recipe_for

    if run.resume:
        recipe = recipes.make(words, options)
    else:
        base = recipes.read(recipes.find(run.config)) if run.config else {}
        named = without_open({"data": data, "model": model})
        recipe = recipe_for(method.method, base, words, options, named)
    if run.dry_run:
        check(recipe)
        return plan_of(recipe)
    return prefer(recipe, place, resume=run.resume, display=run.display)


def adapters_in(lora: str | None) -> Table:
    """Returns the keys of a recipe that `--lora` stands for."""
    if lora is None:
        return {}
    from regard.models.extensions.lora import options_in

    return {"extensions": {"lora": options_in(lora)}}


# -- what would be done


def check_extras(recipe: Recipe) -> None:
    """Refuses impossible variants and knowledge, before anything is read."""
    if recipe.augment != type(recipe.augment)():
        from regard.methods.augment.learning import check as check_variants

        check_variants(recipe)
    if recipe.objective.get("knowledge"):
        from regard.methods.finetune.run import check as check_model
        from regard.tasks.knowledge import check_use
        from regard.training.build import family

        check_model(recipe)
        check_use(family(recipe), recipe.examples.task or "")


def plan_of(recipe: Recipe) -> Table:
    """Returns the resolved recipe and the estimates. Nothing is written."""
    from regard.methods.runs import data_for
    from regard.training.parallel import ProcessGroup
    from regard.training.plan import prepare
    from regard.training.run import pick_device, settings

    device = pick_device(recipe.engine.device)
    with settings(device):
        plan = prepare(
            recipe, ProcessGroup(), device, say, data=data_for(recipe), patience=PATIENCE
        )
    plan.batches.close()
    table = {name: part for name, part in plan.recipe.table().items() if part != {}}
    return {"recipe": table, **plan.facts}


def plan_of_task(recipe: Recipe, stages: FinetuneOptions, out: Path) -> Table:
    """Returns the plan of the fine-tuning itself, without the runs before it."""
    from regard.methods.finetune.multi_stage import check_stages
    from regard.methods.finetune.run import as_text
    from regard.methods.finetune.run import check as check_model

    check_model(recipe)
    check_stages(recipe, stages)
    if as_text(recipe):
        raise ConfigError(
            f"{recipe.model} learns {recipe.examples.task} as text, and the texts must be written "
            "before a run can be planned; leave --dry-run out"
        )
    plan = plan_of(recipes.replaced(recipe, examples={"folds": stages.folds or None}))
    return plan | without_open({"stages": stages.in_words(out)})


def in_lines(result: dict[str, Any]) -> Iterator[str]:
    """Yields the result as lines. A plain run has already reported its end."""
    if "recipe" in result and "memory_needed" in result:
        import tomli_w

        yield tomli_w.dumps(result["recipe"])
        yield f"# {result['model']['parameters']:,} parameters"
        yield f"# about {result['memory_needed'] / 1e9:.2f} GB of memory"
        yield from (f"# {line}" for line in result.get("stages", ()))
    elif "figures" in result:
        from regard.methods.finetune.folds import table

        yield table(result)
        out = result["out"]
        say(f"the figures are in {out}/folds.json, the models in {out}/fold-1 and so on")
    elif "distilled" in result:
        sizes = result["distilled"]
        say(f"{sizes['student']:,} parameters, {sizes['share']:.0%} of the teacher's "
            f"{sizes['teacher']:,}")  # fmt: skip


def code(result: dict[str, Any]) -> int:
    return 130 if result.get("outcome") == "interrupted" else 0


def run_result(result: dict[str, Any]) -> Any:
    from regard.training.result import RunResult

    return RunResult(result)


COMMANDS = {
    function.__name__: Command(function, in_lines, code, result=run_result, opens=True)
    for function in (train, finetune, distill, align)
} | {"plan": layouts.COMMAND}
