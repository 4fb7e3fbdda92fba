"""What is right without any model: the figures that a model must beat to have learned something."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path


def unigram(data: Path) -> dict[str, float]:
    """Returns the figures of a model that knows only how frequent each token is in the training
    text, on the validation text; {} for pairs of texts.

    Counts are raised by one, so that every token has a probability. `commonest_wrong` is the share
    of tokens that are not the commonest one.
    """
    import numpy as np

    from regard.data.corpus import Corpus

    learned, unseen = (Corpus.open(data, split) for split in ("train", "valid"))
    if unseen.kind == "pairs":
        return {}
    counts = np.bincount(learned.read(0, len(learned)), minlength=learned.vocab_size) + 1
    tokens = unseen.read(0, len(unseen))
    nats = float(-np.log(counts[tokens] / counts.sum()).sum())
    return {
        "unigram_bits_per_byte": nats / math.log(2) / max(unseen.bytes, 1),
        "unigram_perplexity": math.exp(nats / max(len(tokens), 1)),
        "commonest_wrong": float((tokens != counts.argmax()).mean()),
    }


def majority_error(test: Path) -> dict[str, float]:
    """Returns the error of the commonest label of a file of labeled examples; {} for examples with
    other answers."""
    records = (json.loads(line) for line in test.read_text(encoding="utf-8").splitlines())
    labels = Counter(str(record["label"]) for record in records if "label" in record)
    return {"majority_error": 1 - max(labels.values()) / labels.total()} if labels else {}
