"""Looks into a trained model: what its layers encode, and where it attends.

Linear probes learn two tasks with automatic labels on the frozen hidden states of each layer. An
untrained model of the same shape shows what the words alone reveal. The attention is that of one
sentence, the same for all models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.attention.attention import Attention
from regard.attention.recorder import record
from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import Checkpoint
from regard.methods.probe.automatic import automatic
from regard.methods.probe.learning import ProbeSchedule, learn
from regard.methods.probe.probes import LabelProbeObjective, ProbeKind, ProbeLabels
from regard.methods.probe.reader import StateReader
from regard.methods.probe.states import states_of, untrained
from regard.methods.probe.tasks import ProbeTask
from regard.metrics.base import Array
from regard.metrics.bootstrap import between, values

TASKS = ("punctuation-next", "previous-word")
PACE = ProbeSchedule(rate=1e-2, epochs=20)
SHORTEST, LONGEST = 6, 14  # tokens of the sentence whose attention is shown
CANDIDATES = 200
BROKEN = "\ufffd"  # a part of a character decodes to this
MOST_PIECES = 8  # tokens of a few characters that share tokens
LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
LAYERS = 6  # layers whose attention is stored, with the first and the last

# -- probes


def probed(loaded: Checkpoint, data: Path, split: str, sentences: int, seed: int) -> dict[str, Any]:
    """Returns the mean accuracy over both tasks, and that of the untrained model; {} if the text is
    too short for these tasks."""
    try:
        tasks = [
            automatic(name, str(data), split=split, limit=sentences, seed=seed) for name in TASKS
        ]
    except InputError:
        return {}
    fresh = untrained(loaded, seed)
    rows, drawn = [], []
    for number, task in enumerate(tasks):
        labels = task.labels()
        layer, right = best_layer(loaded, task, labels, seed)
        _, before = best_layer(fresh, task, labels, seed)
        drawn.append(resampled(right, labels, number))
        rows.append({
            "task": task.name.partition(":")[2], "accuracy": float(right.mean()), "layer": layer,
            "untrained": float(before.mean()), "majority": labels.majority, "words": len(right),
        })  # fmt: skip
    span = between(np.mean(drawn, 0))
    return {
        "probe_accuracy": mean_of(rows, "accuracy"),
        "probe_accuracy_interval": None if span is None else [span.low, span.high],
        "probe_untrained": mean_of(rows, "untrained"),
        "probe_majority": mean_of(rows, "majority"),
        "probe_tasks": rows,
    }


def mean_of(rows: list[dict[str, Any]], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)


def best_layer(
    loaded: Checkpoint, task: ProbeTask, labels: ProbeLabels, seed: int
) -> tuple[int, np.ndarray]:
    """Returns the layer with the best validation loss, and which test words its probe predicts
    correctly."""
    reader = StateReader(loaded)
    states = states_of(reader, *task.rows(reader), list(range(reader.depth + 1)))
    course = LabelProbeObjective(states, labels, states.layers, ProbeKind(), seed)
    pupils = learn(course.modules, course, PACE, seed)
    place = min(range(len(pupils)), key=lambda i: pupils[i].best)
    answers = course.answers(place, labels.test)
    return states.layers[place], answers == labels.take(labels.test)[1]


def resampled(right: np.ndarray, labels: ProbeLabels, seed: int) -> Array:
    """Returns the accuracy on resamples of whole sentences, because the words of one sentence are
    not independent."""
    sizes = labels.edges[labels.test + 1] - labels.edges[labels.test]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    hits = np.bincount(owner, right.astype(np.float64), len(sizes))

    def accuracy(weights: Array) -> Array:
        share: Array = (weights @ hits) / np.maximum(weights @ sizes.astype(np.float64), 1.0)
        return share

    return values({"accuracy": accuracy}, len(sizes), seed=seed)["accuracy"]


# -- attention


def sentence_of(corpus: Corpus, most: int, seed: int) -> str | None:
    """Returns one sentence of the text, the same for all models: of the sampled sentences the one
    with the largest share of letters; of equal ones the longest."""
    edges = np.asarray(corpus.sentences)
    sizes = np.diff(edges)
    room = min(LONGEST, most)
    fit = np.flatnonzero((sizes >= SHORTEST) & (sizes <= room))
    order = fit[keyed(seed, "look").permutation(len(fit))[:CANDIDATES]]
    if not len(fit):  # take the beginning of a long sentence
        order = np.flatnonzero(sizes >= SHORTEST)[:1]
    best: tuple[float, int, str] | None = None
    for index in order.tolist():
        start = int(edges[index])
        ids = corpus.read(start, start + min(int(sizes[index]), room)).tolist()
        text = corpus.tokenizer.decode([i for i in ids if i != corpus.special.end])
        text = " ".join(text.strip(BROKEN).split())  # without parts of characters
        letters = sum(c.isalpha() or c == " " for c in text) / max(len(text), 1)
        candidate = (round(letters, 1), len(text), text)
        best = candidate if text and (best is None or candidate[:2] > best[:2]) else best
    return None if best is None else best[2]


def attended(loaded: Checkpoint, text: str | None) -> dict[str, Any] | None:
    """Returns the mean over heads [rows, columns] of each layer; None for models without
    attention.

    For an encoder-decoder it is the encoder's attention. For Longformer it is the window, because
    no token is global here.
    """
    attends = any(isinstance(part, Attention) for part in loaded.model.modules())
    if text is None or not attends or loaded.tokenizer is None:
        return None
    reader = StateReader(loaded)
    tokens, _, more = reader.inputs(reader.texts([text]))
    with torch.no_grad(), record(loaded.model.eval()) as seen:
        reader.read(tokens, None, more)
    size = tokens.size(1)
    square = [each for each in seen if each.weights.shape[-2:] == (size, size)]
    chosen = square if len(square) <= LAYERS else [square[i] for i in spread(len(square), LAYERS)]
    return {
        "text": text,
        "tokens": labels_of(loaded.tokenizer, tokens[0].tolist()),
        "layers": [
            {"name": each.name, "number": 1 + square.index(each), "weights": rounded(each.weights)}
            for each in chosen
        ],
    }


def labels_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Returns a label for each token. Pieces of one character are that character, numbered: 月₁ 月₂
    月₃."""
    labels: list[str] = []
    pending: list[int] = []
    for place, token in enumerate(ids, 1):
        pending.append(token)
        text = tokenizer.decode(pending, special=True)
        whole = BROKEN not in text
        if len(pending) == 1 and whole:
            labels.append(text)
        elif whole:
            labels += [text + str(i).translate(LOWERED) for i in range(1, len(pending) + 1)]
        elif len(pending) == MOST_PIECES or place == len(ids):
            labels += [tokenizer.decode([each], special=True) for each in pending]
        else:
            continue
        pending = []
    return labels


def rounded(weights: torch.Tensor) -> list[list[float]]:
    mean = weights[0].float().mean(0)
    return [[round(value, 4) for value in row] for row in mean.tolist()]


def spread(count: int, most: int) -> list[int]:
    """Returns at most `most` of `count` indices, evenly spaced, with the first and the last."""
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
