"""Measures a trained model on unseen text.

Only comparable figures are compared. Bits per byte are exact for models that read from left to
right, XLNet among them; a Transformer that gets a prefix is measured on the text after it; a model
that sees both sides has a pseudo-likelihood, which is no probability of a text. The three have
different names and are never ranked against each other. Every model is tested in the way that it
was trained.

    python -m regard.lab.compare.measures OUT CELL
"""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.decoding.filling import fill
from regard.decoding.generation import generate
from regard.formats.directory import Checkpoint, load
from regard.lab.compare.blanks import BlankScorer, sees_both_sides
from regard.lab.compare.comparison import DATA, RUNS, again
from regard.lab.compare.insight import BROKEN, attended, probed, sentence_of
from regard.lab.compare.pairs import minimal_pairs, preferred
from regard.metrics.base import Array
from regard.metrics.bootstrap import intervals, mean_interval
from regard.objectives import objective as find
from regard.objectives.base import Objective
from regard.objectives.causal import CausalObjective
from regard.objectives.recurrent import Recurrent
from regard.training import recipe as recipes
from regard.training.recipe import FrozenConfig
from regard.training.run import RECIPE

BITS = math.log(2)
COUNTED = 10_000_000  # training tokens that are counted for the commonest word
BLOCKS = 1000  # blocks of examples that are stored, to compare two models by


@dataclass(frozen=True)
class MeasureSizes:
    """How much is measured."""

    split: str = "test"
    blanks: int = 1000  # hidden words to predict
    pairs: int = 200  # minimal pairs
    tokens: int = 60  # new tokens of a sample
    prompts: tuple[str, ...] = ()
    sentences: int = 400  # training sentences of the linear probes
    seed: int = 0


def measure(run: Path, data: Path, extent: MeasureSizes) -> dict[str, Any]:
    """Returns every metric that this model can have."""
    loaded, recipe = load(run), recipes.read_resolved(run / RECIPE)
    corpus = Corpus.open(data, extent.split)
    figures: dict[str, Any] = {}
    kind = find(recipe.objective["name"])
    figures |= likelihood(loaded, corpus, recipe)
    if sees_both_sides(loaded.model) and kind.fills_blanks:
        figures |= hidden(loaded, corpus, recipe, extent) | commonest(data, corpus, extent)
    if "bits_per_byte" in figures or "pseudo_bits_per_byte" in figures:
        both = "pseudo_bits_per_byte" in figures
        figures |= judged(loaded, corpus, extent, recipe.batch.seq_len - 3, both)
    figures["samples"] = samples(loaded, corpus, recipe, extent)
    figures |= probed(loaded, data, extent.split, extent.sentences, extent.seed)
    sentence = sentence_of(corpus, recipe.batch.seq_len - 3, extent.seed)
    return figures | {"attention": attended(loaded, sentence)}


# -- bits per byte


def likelihood(loaded: Checkpoint, corpus: Corpus, recipe: FrozenConfig) -> dict[str, Any]:
    """Returns the bits per byte of every document, or of the text after a prefix; {} if the model
    has no likelihood."""
    sizes = {"seq_len": recipe.batch.seq_len, "batch_size": recipe.batch.size, "seed": recipe.seed}
    objective = find(recipe.objective["name"]).text_likelihood(corpus, **sizes)
    if objective is None:
        return {}
    if isinstance(objective, CausalObjective | Recurrent):
        return exact(loaded, objective, recipe.engine.precision)
    return continued(loaded, objective, recipe.engine.precision)


def exact(
    loaded: Checkpoint, objective: CausalObjective | Recurrent, precision: str
) -> dict[str, Any]:
    """Returns the bits per byte of all documents."""
    from regard.evaluation.language_modeling import surprisals

    reading = surprisals(loaded.model, objective, precision, lambda *_: None)
    return bits(reading.nats, [size for _, size in reading.gold])


def bits(nats: list[float], sizes: list[int]) -> dict[str, Any]:
    """Returns the bits per byte of all documents together, with an interval over documents."""
    information, bytes_ = np.array(nats) / BITS, np.array(sizes, np.float64)

    def figure(weights: Array) -> Array:
        bits_per_byte: Array = (weights @ information) / np.maximum(weights @ bytes_, 1)
        return bits_per_byte

    span = intervals({"bits": figure}, len(nats))["bits"] if len(nats) > 1 else None
    return {
        "bits_per_byte": float(information.sum() / max(bytes_.sum(), 1)),
        "bits_per_byte_interval": None if span is None else [span.low, span.high],
        "bits_per_byte_each": by_blocks(information, bytes_),
        "documents": len(nats),
        "bytes": int(bytes_.sum()),
    }


def by_blocks(sums: Array, sizes: Array | None = None) -> dict[str, list[float]]:
    """Returns the parts of a figure by example or, if there are many examples, by blocks of
    neighbors."""
    sizes = np.ones(len(sums)) if sizes is None else sizes
    edges = np.unique(np.linspace(0, len(sums), min(len(sums), BLOCKS) + 1).astype(int)[:-1])
    if not len(sums):
        return {"sums": [], "sizes": []}
    return {
        "sums": np.add.reduceat(sums, edges).round(4).tolist(),
        "sizes": np.add.reduceat(sizes, edges).tolist(),
    }


def continued(loaded: Checkpoint, objective: Objective, precision: str) -> dict[str, Any]:
    """Returns the bits per byte of the second parts of chunks, whose first parts are read from both
    sides."""
    from regard.evaluation.language_modeling import measured_batches
    from regard.evaluation.test import Plan

    measured = measured_batches(loaded, objective, Plan(precision=precision), lambda *_: None)
    return {
        "prefix_bits_per_byte": measured["figures"]["bits_per_byte"],
        "prefix_bits_per_byte_interval": measured["intervals"]["bits_per_byte"],
    }


# -- hidden words


def hidden(
    loaded: Checkpoint, corpus: Corpus, recipe: FrozenConfig, extent: MeasureSizes
) -> dict[str, Any]:
    """Tests single words, each masked alone in a text of the length that the model was trained
    with.

    The words depend only on the text and the seed, so all models are tested on the same words.
    """
    room = recipe.batch.seq_len - 3
    places = words_to_hide(corpus, extent.blanks, extent.seed)
    if not places:
        return {}
    words = len(corpus) - (len(corpus.documents) - 1)  # every document has its end token
    rows, inside, bytes_each = [], [], corpus.bytes / max(words, 1)
    for place in places:
        start = max(0, min(place - room // 2, len(corpus) - room))
        rows.append(corpus.read(start, start + room).tolist())
        inside.append(place - start)
    guesses = BlankScorer(loaded, corpus.special)(rows, inside)
    right = [float(guess.right) for guess in guesses]
    span = mean_interval(right)
    scale = -1 / BITS / bytes_each
    pseudo = [guess.logprob * scale for guess in guesses]
    around = mean_interval(pseudo)
    return {
        "masked_accuracy": sum(right) / len(right),
        "masked_accuracy_interval": None if span is None else [span.low, span.high],
        "masked_accuracy_each": by_blocks(np.array(right)),
        "pseudo_bits_per_byte": sum(pseudo) / len(pseudo),
        "pseudo_bits_per_byte_interval": None if around is None else [around.low, around.high],
        "blanks": len(guesses),
    }


def commonest(data: Path, corpus: Corpus, extent: MeasureSizes) -> dict[str, float]:
    """Returns the share of the hidden words that are the commonest one of the training text: what
    guessing gives."""
    places = words_to_hide(corpus, extent.blanks, extent.seed)
    if not places:
        return {}
    learned = Corpus.open(data, "train")
    counts = np.bincount(learned.read(0, min(len(learned), COUNTED)))
    counts[[i for i in corpus.special.ids() if i < len(counts)]] = 0
    word = int(counts.argmax())
    return {"masked_commonest": float(np.mean([corpus.read(i, i + 1)[0] == word for i in places]))}


def words_to_hide(corpus: Corpus, count: int, seed: int) -> list[int]:
    """Returns the positions of `count` tokens that are no special tokens: a masked model does not
    learn to predict the end of a document, but other models do."""
    special = set(corpus.special.ids())
    drawn = keyed(seed, "blanks").choice(len(corpus), min(2 * count, len(corpus)), replace=False)
    words = [i for i in drawn.tolist() if int(corpus.read(i, i + 1)[0]) not in special]
    return sorted(words[:count])


# -- sentences as they were written


def judged(
    loaded: Checkpoint, corpus: Corpus, extent: MeasureSizes, room: int, both_sides: bool
) -> dict[str, Any]:
    """Tests minimal pairs that fit into every model, read in the way that this model was
    trained."""
    pairs = minimal_pairs(corpus, extent.pairs, extent.seed, room)
    if not pairs:
        return {}
    right = [float(each) for each in preferred(loaded, corpus, pairs, both_sides)]
    span = mean_interval(right)
    return {
        "minimal_pairs": sum(right) / len(right),
        "minimal_pairs_interval": None if span is None else [span.low, span.high],
        "minimal_pairs_each": by_blocks(np.array(right)),
        "pairs": len(right),
    }


# -- samples


def samples(
    loaded: Checkpoint, corpus: Corpus, recipe: FrozenConfig, extent: MeasureSizes
) -> list[dict[str, str]]:
    """Returns what the model writes after each prompt, or in place of a blank. A prompt that is
    longer than the model's context is left out."""
    written: list[dict[str, str]] = []
    if loaded.model.decoding == "queries" and not find(recipe.objective["name"]).queries:
        return written  # it generates with query rows, and was trained without them
    for prompt in extent.prompts or beginnings(corpus):
        with suppress(InputError):
            written.append({"given": prompt, **sample(loaded, prompt, recipe, extent)})
    return written


def sample(
    loaded: Checkpoint, prompt: str, recipe: FrozenConfig, extent: MeasureSizes
) -> dict[str, str]:
    if not find(recipe.objective["name"]).continues:
        blanked = blank_in(prompt)
        (filled,) = fill(loaded, blanked)
        return {"prompt": blanked, "text": filled.text, "kind": "filled"}
    options: dict[str, Any] = {
        "max_new_tokens": extent.tokens, "temperature": 0.8, "top_k": 40, "seed": extent.seed,
    }  # fmt: skip
    ((generation,),) = generate(loaded, prompt, **options)
    return {"prompt": prompt, "text": generation.text or "", "kind": "generated"}


def beginnings(corpus: Corpus, count: int = 2, tokens: int = 8) -> list[str]:
    """Returns the first words of some sentences of the text, the same ones for every model."""
    edges = np.asarray(corpus.sentences)
    long = edges[:-1][np.diff(edges) > 2 * tokens]
    places = [int(long[len(long) * (i + 1) // (count + 1)]) for i in range(count) if len(long)]
    texts = [corpus.tokenizer.decode(corpus.read(at, at + tokens).tolist()) for at in places]
    whole = [text.strip(BROKEN).strip() for text in texts]  # no half of a character
    return [text for text in whole if text]


def blank_in(prompt: str) -> str:
    """Returns the prompt with a blank in place of its middle word."""
    words = prompt.split(" ")
    if len(words) < 2:
        return f"{prompt} ___"
    words[len(words) // 2] = "___"
    return " ".join(words)


def main() -> None:
    """Measures one cell of a comparison in its own process."""
    out, name = Path(sys.argv[1]), sys.argv[2]
    plan = again(out)
    extent = MeasureSizes(blanks=plan.blanks, pairs=plan.pairs, prompts=plan.prompts)
    print(json.dumps(measure(out / RUNS / name, out / DATA, extent)))


if __name__ == "__main__":
    main()
