"""What greed says twice."""

from __future__ import annotations

from typing import Any

from regard.core.seeding import keyed
from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Followed, Found, Room, Trained
from regard.lab.claims.engine.rules import All, Less, Provided, Ratio, Within
from regard.lab.claims.engine.texts import python_docs

TEXTS, PROMPT, TOKENS, GRAM = 20, 16, 100, 4
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 1.0},
    "nucleus": {"top_p": 0.9},
    "penalty": {"temperature": 0, "repetition": 1.3},
}
RUN = Trained(
    python_docs,
    common={
        "model": "gpt", "size": "tiny", "batch": {"length": 128, "samples": 16},
        "objective": {"name": "causal"}, "validation": {"samples": 50},
    },
    arms={"": {}},
    steps=500,
)  # fmt: skip


def repeated(ids: list[int]) -> float:
    """Which share of the runs of four tokens was there before."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams)


def ways(arm: str, seed: int, room: Room) -> Found:
    """One model, and what it writes in every way, beside what people wrote there."""
    from regard.data.corpus import Corpus
    from regard.decoding.generation import generate
    from regard.formats.directory import load

    corpus = Corpus.open(python_docs(room.place), "valid")
    draw = keyed(seed, "prompts")
    starts = draw.integers(len(corpus) - PROMPT - TOKENS, size=TEXTS).tolist()
    prompts = [corpus.read(a, a + PROMPT).tolist() for a in starts]
    texts = [corpus.read(a + PROMPT, a + PROMPT + TOKENS).tolist() for a in starts]
    with RUN.trained(Cell("", 0.0, seed), room) as (run, facts):
        loaded = load(run)
        made = {"people": texts}
        for way, options in WAYS.items():
            found = generate(loaded, prompts, tokens=TOKENS, end=(), seed=seed, **options)
            made[way] = [each[0].ids for each in found]
    return {
        (way, 0.0): {
            "repeated": sum(map(repeated, each)) / TEXTS,
            "bits_per_byte": facts["valid"]["bits_per_byte"],
        }
        for way, each in made.items()
    }


CLAIM = Claim(
    name="repetition",
    statement=Said(
        "Greedy decoding repeats itself; sampling and penalties cure it.",
        "贪心解码会不断重复；采样与惩罚可以治好。",
    ),
    source="Holtzman et al. 2020, sections 3 and 5",
    setting=Said(
        "A GPT of two layers learns from the reference of Python and goes on with 20 beginnings "
        "for 100 tokens: greedily, by sampling, from the nucleus of 0.9, and greedily with a "
        "penalty of 1.3. The share of runs of four tokens that had been there before, beside that "
        "of the text itself.",
        "两层的 GPT 学 Python 参考文档，再把 20 个开头各续写 100 个词元：贪心、采样、0.9 "
        "的核采样、带 1.3 惩罚的贪心。看四词元片段中重复出现的比例，并与原文对照。",
    ),
    arms=("people", *WAYS),
    experiment=Followed(ways, together=True),
    rule=Provided(
        Within("bits_per_byte", "greedy", most=2.6),
        All((
            Ratio("repeated", "greedy", "people", least=3.0),
            Less("repeated", "sampled", "greedy", margin=0.5),
            Less("repeated", "nucleus", "greedy", margin=0.5),
            Less("repeated", "penalty", "greedy", margin=0.5),
        )),
    ),
    charts=(Chart("repeated", Said("repeated runs of four tokens", "重复的四词元片段比例")),),
    minutes=3,
)  # fmt: skip
