"""Minimal pairs: of two sentences that differ in little, does a model prefer the acceptable one?

A file has one JSON object per line, as BLiMP has (Warstadt et al. 2020): `sentence_good` and
`sentence_bad`, and optionally `UID` (the paradigm; else the name of the file), `linguistics_term`
(the phenomenon; else the paradigm) and `field`. A model that reads from left to right gives the
log-likelihood of a sentence. A model that fills blanks gives no likelihood: each token is hidden in
turn, and their sum is the pseudo-log-likelihood (Salazar et al. 2020). Every paradigm counts the
same in the macro mean, whatever the number of its pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import LARGEST, keyed
from regard.data.files import TextFile
from regard.data.problems import FileLine, Problems
from regard.data.readers import MOST
from regard.data.records import json_lines
from regard.decoding.filling import MaskedFiller, filler_for
from regard.decoding.prompts import readable
from regard.evaluation.likelihood import Scorer
from regard.evaluation.preflight import check_used
from regard.evaluation.pseudo_likelihood import blank_scores
from regard.formats.directory import Checkpoint
from regard.metrics.base import mean
from regard.metrics.bootstrap import between, values
from regard.training.train_module import autocast

if TYPE_CHECKING:
    from regard.evaluation.test import Plan, Watch

SENTENCES = ("sentence_good", "sentence_bad")
PART = 256  # pairs that are scored between two signs of life
LEVEL = 0.95


class SentencePair(NamedTuple):
    place: FileLine
    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str


# -- the files


def read_pairs(names: Sequence[str], plan: Plan) -> tuple[list[SentencePair], list[str]]:
    """Reads all pairs, and notes on those that were left out; refuses wrong ones together."""
    problems = Problems()
    pairs: list[SentencePair] = []
    limit = plan.reading.get("max_bytes", MOST)
    for name in names:
        if not Path(name).is_file():
            raise InputError(f"{name} is no file; give files of minimal pairs (JSON Lines)")
        before, file = len(pairs), TextFile(Path(name), name, problems, max_bytes=limit)
        for place, record in json_lines(file):
            if wrong := trouble(record):
                problems.add(place, *wrong)
            else:
                pairs.append(pair_of(place, record))
        if len(pairs) == before and not problems.count("error"):
            raise InputError(f"{name} holds no pair; {' and '.join(SENTENCES)} make one")
    problems.refuse(plan.skip)
    if not pairs:
        raise InputError(f"{', '.join(names)}: no pair is left to measure; mend the files")
    notes = problems.notes()
    if plan.limit and plan.limit < len(pairs):
        notes.append(f"only the first {plan.limit:,} of {len(pairs):,} pairs were measured")
        pairs = pairs[: plan.limit]
    return pairs, notes


def trouble(record: dict[str, Any]) -> tuple[str, str] | None:
    """Returns the kind of problem that a record has, with a message; None for a pair."""
    for name in SENTENCES:
        value = record.get(name)
        if value is None:
            return "missing-field", f"there is no {name!r}; a pair has {' and '.join(SENTENCES)}"
        if not isinstance(value, str):
            return "wrong-type", f"{name!r} is {value!r}; it must be a text"
        if not value.strip():
            return "empty-text", f"{name!r} has no visible character"
    good, bad = (record[name].strip() for name in SENTENCES)
    if good == bad:
        return "contradiction", f"both sentences are {good!r}; no model can prefer one of them"
    return None


def pair_of(place: FileLine, record: dict[str, Any]) -> SentencePair:
    good, bad = (record[name].strip() for name in SENTENCES)
    paradigm = str(record.get("UID") or Path(place.file).name.partition(".")[0])
    phenomenon = str(record.get("linguistics_term") or paradigm)
    return SentencePair(place, good, bad, paradigm, phenomenon, str(record.get("field") or ""))


# -- the scores


class SentenceScorer:
    """Returns one number per sentence, by the measure that the model has."""

    def __init__(self, loaded: Checkpoint) -> None:
        model = loaded.model
        if model.kind == "encoder-decoder":
            raise ConfigError(
                f"{loaded.path} is a {type(model).__name__}, which gives a sentence no likelihood "
                "without a source; minimal pairs are for models that read from left to right, and "
                "for models that fill blanks"
            )
        self.filler: MaskedFiller | None = None
        if model.fills:
            filler = filler_for(loaded, 1, "each", 1)  # refuses an encoder without its masked head
            assert isinstance(filler, MaskedFiller)
            self.filler, self.measure = filler, "pseudo-log-likelihood"
        else:
            self.scorer, self.measure = Scorer(loaded), "log-likelihood"

    def __call__(self, pairs: Sequence[SentencePair]) -> list[tuple[float, float]]:
        """Returns the scores of both sentences of each pair."""
        rows = [(pair.place, text) for pair in pairs for text in (pair.good, pair.bad)]
        totals = self.likelihoods(rows) if self.filler is None else self.pseudo(rows, self.filler)
        return list(zip(totals[::2], totals[1::2], strict=True))

    def likelihoods(self, rows: Sequence[tuple[FileLine, str]]) -> list[float]:
        asks = []
        for place, text in rows:
            asks.append(self.scorer.ask("", text))
            check_room(place, self.scorer.size(asks[-1]), self.scorer.limit)
        return [sum(logprobs) for logprobs in self.scorer.run(asks)]

    def pseudo(self, rows: Sequence[tuple[FileLine, str]], filler: MaskedFiller) -> list[float]:
        """Hides every token of a sentence in turn; special tokens around it stay as they are."""
        hidden_rows, gold, owners = [], [], []
        limit = getattr(filler.model.config, "context", None)
        for number, (place, text) in enumerate(rows):
            ids = filler.words.encode(readable(text), special=False)
            framed = filler.frame(ids)
            check_room(place, len(framed), limit)
            first = int(bool(framed) and framed[0] == filler.special.cls)
            for at, token in enumerate(ids, first):
                hidden_rows.append(([*framed[:at], filler.mask, *framed[at + 1 :]], at))
                gold.append(token)
                owners.append(number)
        totals = [0.0] * len(rows)
        for owner, (logprob, _) in zip(
            owners, blank_scores(filler, hidden_rows, gold), strict=True
        ):
            totals[owner] += logprob
        return totals


def check_room(place: FileLine, size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise InputError(
            f"{place}: a sentence has {size:,} tokens, and this model reads {limit:,} at once; "
            "leave the pair out, or shorten it"
        )


# -- the figures


def summarized(
    pairs: Sequence[SentencePair], right: Sequence[bool], *, resamples: int, seed: int
) -> dict[str, Any]:
    """Returns accuracies with bootstrap intervals: pairs are drawn within their paradigm."""
    groups: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        groups.setdefault(pair.paradigm, []).append(i)
    own, drawn = {}, {}
    for name, places in groups.items():
        each = [float(right[i]) for i in places]
        own[name] = float(np.mean(each))
        key = int(keyed(seed, "paradigm", name).integers(LARGEST))
        drawn[name] = values({"": mean(each)}, len(each), seed=key, resamples=resamples)[""]

    def row(label: str, names: Sequence[str], weights: Sequence[float]) -> dict[str, Any]:
        shares = np.array(weights) / sum(weights)
        span = between(shares @ np.stack([drawn[name] for name in names]), LEVEL)
        assert span is not None
        return {
            "label": label,
            "field": pairs[groups[names[0]][0]].field,
            "paradigms": len(names),
            "pairs": sum(len(groups[name]) for name in names),
            "accuracy": float(shares @ np.array([own[name] for name in names])),
            "interval": [span.low, span.high],
        }

    phenomena: dict[str, list[str]] = {}
    for name, places in groups.items():
        phenomena.setdefault(pairs[places[0]].phenomenon, []).append(name)
    names = list(groups)
    whole = {
        "macro_accuracy": row("", names, [1.0] * len(names)),
        "accuracy": row("", names, [len(groups[name]) for name in names]),
    }
    return {
        "figures": {name: part["accuracy"] for name, part in whole.items()},
        "intervals": {name: part["interval"] for name, part in whole.items()},
        "main": "macro_accuracy", "falling": False,
        "level": LEVEL, "resamples": resamples, "seed": seed,
        "phenomena": [row(label, inner, [1.0] * len(inner)) for label, inner in phenomena.items()],
        "paradigms": [row(name, [name], [1.0]) for name in names],
    }  # fmt: skip


def examine_pairs(
    loaded: Checkpoint, data: Sequence[str], plan: Plan, watch: Watch
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Measures a model on minimal pairs."""
    others = {"--task": plan.task, "--against": plan.against, **plan.decoding}
    others |= {name: value for name, value in plan.reading.items() if name != "max_bytes"}
    if used := [name for name, value in others.items() if value]:
        raise ConfigError(f"{used[0]} has no effect on minimal pairs (--pairs); leave it out")
    unused = dict.fromkeys(("strict", "language", "length", "split"), False)
    check_used(plan, unused, "minimal pairs")
    pairs, notes = read_pairs(data, plan)
    scorer = SentenceScorer(loaded)
    scores: list[tuple[float, float]] = []
    with autocast(next(loaded.model.parameters()).device, plan.precision):
        for start in range(0, len(pairs), PART):
            scores += scorer(pairs[start : start + PART])
            watch("scoring", len(scores), len(pairs))
    right = [good > bad for good, bad in scores]
    notes.append(f"a sentence is scored by its {scorer.measure}; half of the pairs are chance")
    if ties := sum(good == bad for good, bad in scores):
        notes.append(f"{ties:,} pairs have two equal scores, and count as wrong")
    result = summarized(pairs, right, resamples=plan.resamples, seed=plan.seed)
    result |= {"task": "minimal pairs", "units": "pairs", "examples": len(pairs), "notes": notes,
               "measure": scorer.measure, "worst": worst(pairs, scores, plan.worst)}  # fmt: skip
    rows = (
        {"place": str(pair.place), "paradigm": pair.paradigm, "phenomenon": pair.phenomenon,
         "good": pair.good, "bad": pair.bad, "good_score": good, "bad_score": bad,
         "right": good > bad}
        for pair, (good, bad) in zip(pairs, scores, strict=True)
    )  # fmt: skip
    return result, rows


def worst(
    pairs: Sequence[SentencePair], scores: Sequence[tuple[float, float]], most: int
) -> list[dict[str, Any]]:
    """Returns the wrong pairs, those with the largest preference for the bad sentence first."""
    margins = [good - bad for good, bad in scores]
    order = sorted((i for i, margin in enumerate(margins) if margin <= 0), key=margins.__getitem__)
    return [
        {"index": i, "text": pairs[i].paradigm, "gold": pairs[i].good, "predicted": pairs[i].bad,
         "score": margins[i], "place": str(pairs[i].place)}
        for i in order[:most]
    ]  # fmt: skip
