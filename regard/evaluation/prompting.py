"""Zero-, one- and few-shot evaluation: a model is prompted, and its weights do not change.

    evaluate(loaded, examples, "classify", shots=4, labels={"pos": "great", "neg": "terrible"})

The prompt holds demonstrations (examples with their answers), then the example without its answer
(Brown et al. 2020, 2.4). If there are answers to choose from, each is scored in four ways:

| score | what decides |
| --- | --- |
| raw | log P(answer given the prompt) |
| token | the same for each token: GPT-3's choice for most tasks |
| byte | the same for each byte of the answer, whatever the tokenizer |
| calibrated | raw - log P(answer given a neutral context): GPT-3's choice for ARC and RACE |

The neutral context is a text such as "Answer:", or the same prompt with "N/A" in place of the
example (`blank`: contextual calibration, Zhao et al. 2021; several blanks are averaged as
probabilities). Open answers are decoded up to the first line break and measured as in `regard
evaluate`. If no language is given, the letters of the answers decide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from regard.core.seeding import permutation
from regard.data.examples import Example
from regard.evaluation.likelihood import Likelihood, score
from regard.evaluation.options import SCORES
from regard.evaluation.preflight import check_measures, check_used, meanwhile
from regard.evaluation.prompter import (
    Options,
    Prompter,
    Row,
    prompter_for,
    softmax,
)
from regard.formats.directory import Checkpoint
from regard.metrics.base import TaskMetric
from regard.metrics.bootstrap import mean_interval
from regard.metrics.figures import summarize
from regard.tasks import task as find

__all__ = ["SCORES", "Likelihood", "Options", "evaluate", "score"]

PORTION = 64  # the number of examples that are prompted together
OPEN = ("max_new_tokens", "num_beams", "language")  # are for answers that are written
CLOSED = ("score", "neutral", "blank")  # are for answers to choose from


def evaluate(
    loaded: Checkpoint,
    examples: Sequence[Example],
    task: str,
    *,
    pool: Sequence[Example] | None = None,
    watch: Callable[[str, int, int], None] = lambda what, done, of: None,
    **options: Any,
) -> dict[str, Any]:
    """Returns all results of a test by prompts as plain values, including `predictions`.

    Demonstrations come from `pool`, or from the examples themselves; the tested example, and every
    example with the same text, is never among them. `Options` lists all options. `watch` is called
    with the progress.
    """
    chosen = Options.of(options)
    kind = find(task)
    check_used(chosen, dict.fromkeys(OPEN if kind.chooses else CLOSED, False), task)
    prompter = prompter_for(loaded, examples, kind, pool, chosen)
    metric, options = kind.metric(list(prompter.words)), {}
    if not kind.chooses:
        gold = [example.gold for example in examples]
        options = kind.metric_options([], gold, strict=False, language=chosen.language)
    check_measures(metric, task, options.get("language", ""))
    numbers = list(range(len(examples)))
    if chosen.limit is not None and chosen.limit < len(examples):
        drawn = permutation(len(examples), chosen.seed, "limit")
        numbers = sorted(drawn[: chosen.limit].tolist())
    rows: list[Row] = []
    with meanwhile(metric):
        for start in range(0, len(numbers), PORTION):
            rows += prompter.answer(numbers[start : start + PORTION])
            watch("asking", len(rows), len(numbers))
    return report(prompter, rows, metric, options)


def report(
    asker: Prompter, rows: list[Row], metric: type[TaskMetric], more: dict[str, Any]
) -> dict[str, Any]:
    options, choosing = asker.options, asker.task.chooses
    gold, predicted = [row["gold"] for row in rows], [row["predicted"] for row in rows]
    numbers = [row["number"] for row in rows]
    texts = [asker.template.context(asker.values(asker.examples[i])) for i in numbers]
    if choosing:
        more = {"scores": [answer_probabilities(row, options.score) for row in rows]}
    result = summarize(
        metric,
        gold,
        predicted,
        texts=texts,
        seed=options.seed,
        resamples=options.resamples,
        **more,
    )
    facts = {
        "task": asker.task.name,
        "model": str(asker.loaded.path or ""),
        "shots": options.shots,
        "draw": options.draw,
        "fixed": options.fixed,
        "instruction": options.instruction,
        "template": asker.template.text,
        "separator": asker.separator,
        "labels": asker.words,
    }
    if choosing:
        neutral = {"blank": list(options.blank)} if options.blank else {"neutral": asker.neutral}
        facts |= {"score": options.score, **neutral, **accuracy_by_score(rows, options)}
    else:
        facts |= more
    lengths = {"dropped_shots": asker.dropped, "shortened": asker.short, "cut": asker.cut}
    notes = list(notes_on(asker, len(rows)))
    return result | facts | lengths | {"notes": notes, "predictions": rows}


def answer_probabilities(row: Row, score: str) -> dict[Any, float]:
    """Returns the probability of each answer: the softmax of the scores that decide."""
    scores: dict[Any, float] = row["scores"][score]
    return dict(zip(scores, softmax(list(scores.values())), strict=True))


def accuracy_by_score(rows: list[Row], options: Options) -> dict[str, Any]:
    """Returns the accuracy of each score, and of two baselines without a model."""
    by = {}
    for name in SCORES:
        right = [float(row["by"][name] == row["gold"]) for row in rows]
        span = mean_interval(right, seed=options.seed, resamples=options.resamples)
        between = [span.low, span.high] if span else None
        by[name] = {"accuracy": sum(right) / len(right), "interval": between}
    label, count = Counter(row["gold"] for row in rows).most_common(1)[0]
    chance = sum(1 / len(row["scores"]["raw"]) for row in rows) / len(rows)
    frequent = {"label": label, "accuracy": count / len(rows)}
    return {"by_score": by, "most_frequent": frequent, "chance": chance}


def notes_on(asker: Prompter, examples: int) -> Iterator[str]:
    """Yields notes for the user on shortened prompts."""
    limit = asker.scorer.limit
    if asker.dropped:
        yield (
            f"{asker.dropped:,} demonstrations were dropped in {asker.short:,} of {examples:,} "
            f"prompts, from the first one on, to fit {limit:,} tokens"
        )
    if asker.cut:
        yield (
            f"{asker.cut:,} of {examples:,} prompts are longer than {limit:,} tokens even without "
            "demonstrations; their beginning was cut off"
        )
