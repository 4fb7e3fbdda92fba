"""The commands `regard evaluate`, `probe` and `compare`, which measure models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from regard.cli import claims
from regard.cli.compare import code, compare, comparison_result, where_compared
from regard.cli.guess import check_order, check_there
from regard.cli.options import AskedFor, Command
from regard.cli.output import say, unescaped
from regard.cli.use import LEARNED, WRITING, opened
from regard.core.errors import ConfigError, InputError
from regard.core.files import write_json, write_text
from regard.core.options import Argument, Option, PartialOptions, Quiet
from regard.core.tables import Table
from regard.core.text import visible
from regard.data.readers import ReaderOptions as Reading
from regard.decoding.options import DecodingOptions as Decoding
from regard.evaluation.options import EvaluateOptions, NgramOptions, PromptOptions
from regard.methods.probe.plan import ProbePlan as Probing

CLASSES = 20  # the number of classes in the table
# The options of prompts. --shots alone is enough to evaluate by prompts.
OF_PROMPTS = {"--shots", "--shots-from", "--template", "--verbalizer", "--shot-sampling",
              "--fixed-shots", "--instruction", "--separator", "--score", "--neutral",
              "--blank"}  # fmt: skip
OF_NGRAM = {"--ngram-order", "--max-tokens"}
OF_HARNESS = {"--harness", "--harness-tasks", "--shots", "--limit", "--seed", "--out",
              "--download", "--quiet", "--json", "--allow-nan"}  # fmt: skip
OF_TEST = {"--against", "--pairs", "--show-errors", "--strict", "--split"}


# -- evaluate


@dataclass(frozen=True)
class MeasuringOptions:
    """How a model is evaluated, or whether an n-gram is."""

    prefix: Annotated[
        str | None,
        Option(
            "The prefix of every text for a published T5, such as 'summarize: '.", metavar="TEXT"
        ),
    ] = None
    shots_from: Annotated[
        Sequence[str],
        Option(
            "Draw demonstrations from this file.",
            metavar="FILE",
            default="DATA without the tested example",
        ),
    ] = ()
    baseline: Annotated[
        bool,
        Option(
            "Measure the n-gram that a neural model has to beat, instead of a model; its "
            "split is valid unless --split says another."
        ),
    ] = False
    harness: Annotated[
        Sequence[str],
        Option(
            "Run these tasks of lm-evaluation-harness, with commas between them; no DATA.",
            metavar="TASK,…",
            commas=True,
        ),
    ] = ()
    harness_tasks: Annotated[
        Path | None,
        Option("The directory of the harness's task files.", metavar="DIR",
               default="the tasks that the library brings"),
    ] = None  # fmt: skip
    quiet: Quiet = False


def evaluate(
    model: Annotated[str, Argument("MODEL", "A run or a model directory; with --baseline DATA, or "
                                   "a saved n-gram and DATA.")],
    data: Annotated[
        Sequence[str],
        Argument("DATA…", "Labeled files (regard check), or hub:NAME; for a language model text, "
                 "or a data directory of 'regard prepare'."),
    ] = (),
    *,
    options: MeasuringOptions,
    test: Annotated[Table, PartialOptions(EvaluateOptions)],
    reading: Annotated[Table, PartialOptions(Reading, "-classes")],
    decoding: Annotated[Table, PartialOptions(Decoding, *WRITING, max_new_tokens=LEARNED)],
    prompts: Annotated[Table, PartialOptions(PromptOptions)],
    ngram: Annotated[Table, PartialOptions(NgramOptions)],
    typed: AskedFor,
) -> Table:  # fmt: skip
    """Measure a model on test data, with the standard metrics of the field.

    Figures come with 95% confidence intervals. DIR gets a page with the worst errors (report.html),
    every answer (predictions.jsonl) and all results for programs (test.json).

    With --shots the model is prompted, and its weights do not change: answers to choose from are
    scored by their likelihood, others are generated up to the end of the line. With --baseline the
    n-gram (modified Kneser-Ney) of a data directory is measured. With --pairs DATA are minimal
    pairs (JSON Lines with sentence_good and sentence_bad): does the model prefer the good sentence?

    \b
    Examples:
      regard evaluate ./reviewer test.jsonl
      regard evaluate ./tagger test.conll --against ./old-tagger
      regard evaluate ./translator test.en test.zh --language zh --num-beams 4
      regard evaluate ./my-gpt book.txt
      regard evaluate my-gpt reviews.jsonl --task classify --shots 0 --verbalizer pos=great
      regard evaluate my-bert --pairs blimp/*.jsonl
      regard evaluate ./data --baseline --ngram-order 3 --out ngram.safetensors
      regard evaluate my-gpt --harness my-task --harness-tasks tasks/
    """
    if options.harness or options.harness_tasks:
        return measured_by_harness(model, data, options, test, prompts, reading, typed)
    by_prompts = not OF_PROMPTS.isdisjoint(typed)
    check_mode(typed, by_prompts, options.baseline)
    if options.baseline:
        return measured_ngram([model, *data], ngram)
    check_order("evaluate", model, data[0] if data else "")
    check_there("DATA", *data)
    if not data:
        raise InputError("DATA is missing; give the test data after MODEL")
    if by_prompts:
        return measured_by_prompts(
            model, data, prompts, options.shots_from, test, reading, options.quiet
        )
    from regard.evaluation.test import examine
    from regard.training.hardware import quick_malloc

    quick_malloc()
    if options.prefix is not None:
        decoding["prefix"] = options.prefix
    plan = EvaluateOptions(**test, reading=reading, decoding=decoding)
    return examine(model, list(data), plan, quiet=options.quiet)


def measured_by_harness(
    model: str,
    data: Sequence[str],
    options: MeasuringOptions,
    test: Table,
    prompts: Table,
    reading: Table,
    typed: Sequence[str],
) -> Table:
    """Runs tasks of lm-evaluation-harness, which have their own data."""
    if not options.harness:
        raise ConfigError("--harness is missing; name the tasks of --harness-tasks to run")
    if data:
        raise ConfigError(f"DATA is {data[0]}, but the tasks of --harness have their own; leave "
                          "it out")  # fmt: skip
    if others := [option for option in typed if option not in OF_HARNESS]:
        raise ConfigError(f"{others[0]} has no effect on the tasks of --harness; leave it out")
    from regard.evaluation.harness import HarnessPlan, run_harness

    names = ("limit", "seed", "out")
    settings = {name: test[name] for name in names if name in test}
    plan = HarnessPlan(
        options.harness, options.harness_tasks, prompts.get("shots"),
        download=reading.get("download", False), **settings,
    )  # fmt: skip
    return run_harness(model, plan)


def check_mode(typed: Sequence[str], by_prompts: bool, baseline: bool) -> None:
    """Refuses options that this kind of evaluation would ignore."""
    ways = (
        (OF_PROMPTS, not baseline, "is for prompts, and --baseline measures an n-gram"),
        (OF_NGRAM, baseline, "is for the n-gram: give --baseline, or leave it out"),
        (OF_TEST, not by_prompts, "has no effect on a model that is prompted (--shots)"),
        (OF_TEST - {"--split"}, not baseline, "has no effect on an n-gram (--baseline)"),
    )
    for options, fits, why in ways:
        named = [option for option in typed if option in options]
        if named and not fits:
            raise ConfigError(f"{named[0]} {why}")


def measured_by_prompts(
    model: str,
    data: Sequence[str],
    prompts: Table,
    shots_from: Sequence[str],
    test: Table,
    reading: Table,
    quiet: bool,
) -> Table:
    """Evaluates zero-, one- or few-shot, and writes the answers into a file."""
    for name in ("template", "instruction", "separator", "neutral"):
        if name in prompts:
            prompts[name] = unescaped(prompts[name])
    if "blank" in prompts:
        prompts["blank"] = tuple(unescaped(text) for text in prompts["blank"])
    PromptOptions.of(prompts)  # refuses wrong options before anything is opened
    task, out = test.get("task"), test.get("out")
    if not task:
        raise ConfigError("--task is missing; give a task, such as --task classify")
    from regard.core.progress import Progress
    from regard.data.problems import Problems
    from regard.evaluation.preflight import check_place
    from regard.evaluation.prompting import evaluate as ask
    from regard.evaluation.test import progress_callback
    from regard.tasks import read

    if out is not None:
        check_place(out)
    how = reading | {"classes": True, "offsets": False, "skip": test.get("skip", ())}
    problems = Problems()
    examples = read(list(data), task, problems=problems, **how)
    pool = read(list(shots_from), task, problems=problems, **how) if shots_from else None
    loaded = opened(model, test.get("precision", "fp32"), reading.get("download", False))
    progress = Progress(quiet=quiet)
    try:
        result = ask(
            loaded, examples, task, pool=pool, watch=progress_callback(progress), **prompts
        )
    finally:
        progress.close()
    result = {"data": list(data), "shots_from": list(shots_from or data), **result, "model": model}
    result["notes"][:0] = problems.notes()
    rows = result.pop("predictions")
    if out is not None:
        result["out"] = str(out)
        write_answers(out, result, rows)
    return result


def write_answers(out: Path, result: Table, rows: list[Table]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_text(out / "predictions.jsonl", "".join(lines))
    write_json(out / "result.json", result)


def measured_ngram(paths: list[str], options: Table) -> Table:
    """Measures the n-gram of a data directory, or a saved one, on a split of the directory."""
    *saved, data = paths
    if len(saved) > 1:
        raise InputError("--baseline measures one n-gram on one data directory; give no more")
    if saved and ("order" in options or "tokens" in options):
        raise InputError(f"{saved[0]} has its own counts; leave out --ngram-order and "
                         "--max-tokens")  # fmt: skip
    out = options.get("out")
    if out is not None and out.suffix not in (".json", ".safetensors"):
        raise InputError(f"--out is {out}; give a name that ends in .json or .safetensors")
    if out is not None and not out.parent.is_dir():
        raise InputError(f"--out is {out}, but there is no directory {out.parent}; make it first")
    from regard.data.corpus import Corpus
    from regard.evaluation.ngram import Ngram
    from regard.evaluation.ngram_baseline import count, measure

    split = options.get("split", NgramOptions.split)
    Corpus.open(Path(data), split)  # refuses an unknown split before the work
    report = over_the_line if sys.stderr.isatty() else None
    try:
        if saved:
            ngram = Ngram.load(Path(saved[0]))
        else:
            ngram = count(Path(data), options.get("order", 5), options.get("tokens"), report)
        result: Table = measure(ngram, Path(data), split, report)
    finally:
        if report is not None:
            report("")
    if out is not None and out.suffix == ".safetensors":
        ngram.save(out)
    elif out is not None:
        write_json(out, result)
    return result


def over_the_line(text: str) -> None:
    """Prints a line of the terminal that the next one overwrites."""
    print(f"\r\033[K{visible(text)}", end="", file=sys.stderr, flush=True)


# -- probe


def probe(
    run: Annotated[
        str, Argument("RUN", "A run or a model directory; with --resume the OUT to continue.")
    ],
    *,
    out: Annotated[Path | None, Option("Write the results here.", metavar="OUT")] = None,
    plan: Annotated[Table, PartialOptions(Probing)],
    resume: Annotated[bool, Option("RUN is an OUT that was stopped: continue it.")] = False,
    quiet: Quiet = False,
    typed: AskedFor,
) -> Table:
    """Measure what a model's layers and heads encode, compared with an untrained model.

    Small probes learn labels from frozen hidden states, layer by layer; OUT gets figures
    (probe.json) and a page with curves (probe.html). The values of --task are:

    \b
      FILE               words with tags, texts or pairs with labels; CoNLL-U: the parts of
                         speech (or others: --field tags=xpos, --field tags=relation)
      auto:NAME          capital, number, punctuation-next, word-length, position, previous-word,
                         sentence-length, word-order, same-document: made from plain text
      structure          distances, depths and heads of dependency trees
      heads              how far and where each head attends; with CoNLL-U, along which relations

    \b
    Examples:
      regard probe my-bert --task ner.conll --control --out probed
      regard probe my-gpt --task auto:punctuation-next --data book.txt --out probed
      regard probe my-bert --task structure --data train.conllu --valid dev.conllu \\
        --probe rank-64 --out probed
      regard probe my-bert --task heads --data dev.conllu --out looked
      regard probe --resume probed
    """
    if resume:
        beside = [option for option in typed if option not in ("--resume", "--quiet", "--json")]
        if plan.get("untrained") is False:
            beside = ["--no-untrained" if one == "--untrained" else one for one in beside]
        if beside:
            raise ConfigError(f"{beside[0]} is given with --resume, but a probing continues with "
                              "its own options; give OUT alone")  # fmt: skip
    elif out is None:
        raise ConfigError("--out is missing; give the directory for the results")
    chosen = None if resume else check_probing(Probing(run, **plan))
    from regard.methods.probe.experiment import probe as begin
    from regard.methods.probe.experiment import resume as go_on
    from regard.training.hardware import quick_malloc

    quick_malloc()
    if chosen is None:
        result = go_on(Path(run), quiet=quiet)
    else:
        assert out is not None
        result = begin(chosen, out, quiet=quiet)
    if result["outcome"] == "interrupted":
        say(f"stopped; continue with: regard probe --resume {result['out']}")
    return result


def check_probing(plan: Probing) -> Probing:
    """Refuses files that are missing, and data in the place of a model."""
    check_order("probe", plan.run, option="--data")
    named = {"--data": plan.data, "--valid": plan.valid, "--test": plan.test}
    named |= {"--task": plan.task} if "." in plan.task else {}
    for option, name in named.items():
        check_there(option, *filter(None, [name]))
    return plan


def probed_lines(result: Table) -> Iterator[str]:
    from regard.methods.probe.report import in_lines

    if result["outcome"] != "interrupted":
        yield from in_lines(result)


def where_evaluated(result: Table) -> str:
    """Says where the page of a test or the answers to prompts are. An n-gram writes neither."""
    if "out" not in result or "orders" in result:
        return ""
    place = Path(result["out"])
    if "harness" in result:
        return f"all figures and answers are in {place}"
    if "shots" in result:
        return f"the answers are in {place / 'predictions.jsonl'}"
    return f"the page is {place / 'report.html'}"


def where_probed(result: Table) -> str:
    done = result["outcome"] != "interrupted"
    return f"the page is {Path(result['out'], 'probe.html')}" if done else ""


def evaluated_lines(result: Table) -> Iterator[str]:
    from regard.cli.measured import in_lines

    return in_lines(result)


def evaluation_result(result: Table) -> Any:
    from regard.evaluation.result import EvaluationResult

    return EvaluationResult(result)


def probe_result(result: Table) -> Any:
    from regard.methods.probe.result import ProbeResult

    return ProbeResult(result)


COMMANDS: dict[str, Any] = {
    "evaluate": Command(evaluate, evaluated_lines, after=where_evaluated, result=evaluation_result,
                        opens=True),
    "probe": Command(probe, probed_lines, code, where_probed, result=probe_result, opens=True),
    "compare": Command(compare, lambda report: iter([report["summary"]]), code, where_compared,
                       result=comparison_result),
    "claims": ("claims", "Try what papers say: experiments with rules that were fixed before they "
               "run.", claims.COMMANDS),
}  # fmt: skip
