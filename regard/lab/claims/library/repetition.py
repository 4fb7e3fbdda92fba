"""Repetition in greedy decoding."""

from __future__ import annotations

from typing import Any

from regard.core.seeding import keyed
from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import (
    FollowedExperiment,
    Found,
    TrainedExperiment,
    Workspace,
)
from regard.lab.claims.engine.texts import python_docs

TEXTS, PROMPT, TOKENS, GRAM = 20, 16, 100, 4
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 1.0},
    "nucleus": {"top_p": 0.9},
    "penalty": {"temperature": 0, "repetition_penalty": 1.3},
}
RUN = TrainedExperiment(
    python_docs,
    common={
        "model": "gpt", "size": "tiny", "batch": {"seq_len": 128, "size": 16},
        "objective": {"name": "causal"}, "validation": {"samples": 50},
    },
    arms={"": {}},
    steps=500,
)  # fmt: skip


def repeated(ids: list[int]) -> float:
    """Returns the share of 4-grams that occurred before."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams)


def ways(arm: str, seed: int, room: Workspace) -> Found:
    """Trains one model and compares what it writes with every decoding method with what people
    wrote."""
    from regard.data.corpus import Corpus
    from regard.decoding.generation import generate
    from regard.formats.directory import load

    corpus = Corpus.open(python_docs(room.place), "valid")
    draw = keyed(seed, "prompts")
    starts = draw.integers(len(corpus) - PROMPT - TOKENS, size=TEXTS).tolist()
    prompts = [corpus.read(a, a + PROMPT).tolist() for a in starts]
    texts = [corpus.read(a + PROMPT, a + PROMPT + TOKENS).tolist() for a in starts]
    with RUN.trained(ClaimCell("", 0.0, seed), room) as (run, facts):
        loaded = load(run)
        written = {"people": texts}
        for way, options in WAYS.items():
            generations = generate(
                loaded, prompts, max_new_tokens=TOKENS, eos_ids=(), seed=seed, **options
            )
            written[way] = [each[0].ids for each in generations]
    return {
        (way, 0.0): {
            "repeated": sum(map(repeated, each)) / TEXTS,
            "bits_per_byte": facts["valid"]["bits_per_byte"],
        }
        for way, each in written.items()
    }


EXPERIMENT = FollowedExperiment(ways, together=True)
