"""Knowledge on a task that only a graph can answer.

    python benchmarks/knowledge.py [--seeds 3] [--only tree,none] [--json]
    python benchmarks/knowledge.py --examples 200        # few and short: to try it

Made-up creatures have a color and fear another color; both facts stand only in a graph. "The zobi
met the kalu. Is the kalu red or blue?" asks for the color of one of them; a third of the wrong
colors is that of the other creature, a third the one that this creature fears. No creature of the
test occurs in the training data, so a model that does not read the graph can only guess between the
two colors. A small BERT learns it from scratch, in five ways:

* without knowledge;
* K-BERT: branches with soft positions and the visible matrix;
* the same branches as plain text, which every token sees;
* guidance: the text as it is, and a learned bias between entities that the graph relates;
* guidance whose strength is gated by the query token.

Each finished cell is saved; if the script is started again, it continues with the next. The section
is "knowledge" of docs/results.md.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from page import cells, goal, in_process, once, say, spread, table
from script import options_of, parser_for, publish, write_cell

STARTS = "ba da fe go hu ji ka lo mi nu pe ra so ti vu qi xe yo za zo".split()
ENDS = "bi dok fa gur kalu lim mo nex pol rit sen tu vas wop yin zel".split()
COLOURS = "red blue green white black brown grey pink".split()
KINDS = ("any", "of the other", "feared")  # the kinds of wrong colors
FRAMES = ["the {a} met the {b}", "a {a} saw the {b} today", "the {b} and the {a} were there"]
ASKS = ["is the {x} {a} or {b}", "was that {x} {a} or was it {b}"]
SHAPE = {"width": 64, "layers": 3, "heads": 4, "ffn_size": 256, "context": 64}
TRAIN, VALID, TEST = 6000, 500, 2000  # the numbers of examples
STEPS, SAMPLES, RATE = 1000, 32, 1e-3
REACHED, CHANCE = 0.9, 0.55  # goals: at least with knowledge, at most without

RULES = ["entity", "relation:color", "relation:fears"]
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("without knowledge", {}),
    "tree": ("branches with the visible matrix", {"mode": "tree"}),
    "text": ("branches as text, seen by all", {"mode": "tree", "matrix": False}),
    "bias": ("guidance, a strength for each head", {"mode": "bias", "rules": RULES}),
    "gated": ("guidance, gated", {"mode": "bias", "rules": RULES, "guidance": {"gated": True}}),
}


# -- a world


def creatures(seed: int) -> list[str]:
    from regard.core.seeding import permutation

    names = [first + last for first in STARTS for last in ENDS]
    return [names[i] for i in permutation(len(names), seed, "creatures")]


class Creature(NamedTuple):
    name: str
    color: str
    fears: str  # another color


def world(seed: int) -> list[Creature]:
    from regard.core.seeding import keyed

    population = []
    for name in creatures(seed):
        color, fears = keyed(seed, "properties", name).choice(COLOURS, 2, replace=False)
        population.append(Creature(name, str(color), str(fears)))
    return population


def examples(count: int, among: list[Creature], *key: int | str) -> list[dict[str, str]]:
    """Returns questions between two colors. The wrong one is any color, that of the other creature,
    or the feared one."""
    from regard.core.seeding import keyed

    records = []
    for index in range(count):
        dice = keyed(*key, index)
        subject, other = (among[i] for i in dice.choice(len(among), 2, replace=False))
        while other.color == subject.color or other.name == subject.name:
            other = among[int(dice.integers(len(among)))]
        others = [c for c in COLOURS if c not in (subject.color, subject.fears, other.color)]
        wrong = (str(dice.choice(others)), other.color, subject.fears)[index % len(KINDS)]
        first, second = (str(c) for c in dice.permutation([subject.color, wrong]))
        a, b = (str(x) for x in dice.permutation([subject.name, other.name]))
        records.append(
            {
                "premise": str(dice.choice(FRAMES)).format(a=a, b=b),
                "hypothesis": str(dice.choice(ASKS)).format(x=subject.name, a=first, b=second),
                "label": subject.color,
            }
        )
    return records


def tokenizer() -> Any:
    """Returns a tokenizer that splits names into two syllables, all of which occur in training."""
    from regard.data.special_tokens import completed, special_of
    from regard.data.tokenizer import Tokenizer
    from regard.data.tokenizer_classes import bert_pieces

    words = {word for text in [*FRAMES, *ASKS] for word in text.split() if "{" not in word}
    words |= {*COLOURS, "color", "fears"}
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    starts = [start for start in STARTS if start not in words]
    plain = Tokenizer(bert_pieces([*marks, *sorted(words), *starts, *(f"##{end}" for end in ENDS)]))
    return completed(plain, special_of(plain, "the tokenizer"))


# -- a cell


def cell(way: str, seed: int, few: int, place: Path) -> dict[str, Any]:
    """Measures one way with one seed: the accuracy on unseen creatures, and on seen ones."""
    import regard
    from regard.core.seeding import seed_torch
    from regard.data.knowledge.graph import Graph
    from regard.methods.finetune.run import finetune
    from regard.models.bert import Bert, BertConfig
    from regard.training.recipe import make

    every = world(seed)
    seen, unseen = every[: len(every) * 3 // 4], every[len(every) * 3 // 4 :]
    sizes = [few or TRAIN, min(few or VALID, VALID), min(few or TEST, TEST)]
    splits = {
        "train": examples(sizes[0], seen, seed, "train"),
        "valid": examples(sizes[1], seen, seed, "valid"),
        "test": examples(sizes[2], unseen, seed, "test"),
    }
    for name, records in splits.items():
        text = "".join(json.dumps(record) + "\n" for record in records)
        (place / f"{name}.jsonl").write_text(text, encoding="utf-8")
    facts = [(c.name, name, value) for c in every for name, value in c._asdict().items()]
    Graph(fact for fact in facts if fact[1] != "name").write(place / "facts.tsv")
    words = tokenizer()
    seed_torch(seed, "start")
    config = BertConfig(vocab_size=len(words), **SHAPE)  # type: ignore[arg-type]
    regard.save(Bert(config).initialize(), place / "bert", words)
    knowledge = {"graph": str(place / "facts.tsv")} | WAYS[way][1] if WAYS[way][1] else {}
    recipe = make(
        {
            "model": str(place / "bert"),
            "data": str(place / "train.jsonl"),
            "seed": seed,
            "examples": {"task": "entail", "valid": str(place / "valid.jsonl")},
            "objective": {"knowledge": knowledge},
            "batch": {"size": SAMPLES, "seq_len": 48},
            "budget": {"steps": 20 if few else STEPS},
            "optimizer": {"lr": RATE},
            "engine": {"precision": "fp32", "compile": "no"},
        }
    )
    began = time.perf_counter()
    finetune(recipe, place / "run", display="silent")
    seconds = time.perf_counter() - began
    loaded = regard.load(place / "run")
    scores = {name: score(loaded, splits[name]) for name in ("valid", "test")}
    return {
        "way": way,
        "seed": seed,
        "test": scores["test"],
        "seen": scores["valid"],
        "kinds": [score(loaded, splits["test"][i :: len(KINDS)]) for i in range(len(KINDS))],
        "seconds": seconds,
    }


def score(loaded: Any, records: list[dict[str, str]]) -> float:
    predictions = loaded.entail([r["premise"] for r in records], [r["hypothesis"] for r in records])
    return sum(p.value == r["label"] for p, r in zip(predictions, records, strict=True)) / len(
        records
    )


# -- the page


def settings(way: str, seed: int, few: int) -> dict[str, Any]:
    return {
        "way": WAYS[way][1], "seed": seed, "shape": SHAPE, "examples": few or [TRAIN, TEST],
        "steps": STEPS, "samples": SAMPLES, "rate": RATE,
    }  # fmt: skip


def section(rows: list[dict[str, Any]]) -> str:
    lines, missed = [], []
    for way, (title, _) in WAYS.items():
        cells = [row for row in rows if row["way"] == way]
        if not cells:
            continue
        test = [row["test"] for row in cells]
        mean = sum(test) / len(test)
        reached = mean <= CHANCE if way == "none" else mean >= REACHED
        if way not in ("none", "tree", "bias"):
            reached = True  # this way has no goal
        missed += [] if reached else [title]
        columns = [spread([row["kinds"][i] for row in cells]) for i in range(len(KINDS))]
        columns.append(spread([row["seen"] for row in cells]))
        seconds = spread([row["seconds"] for row in cells], ".0f")
        lines.append([title, str(len(cells)), goal(spread(test), reached), *columns, seconds])
    wrong = [f"wrong: {kind}" for kind in KINDS]
    heads = ["way", "seeds", "unseen creatures", *wrong, "seen creatures", "seconds"]
    parts = [
        "## Knowledge",
        "Made by `python benchmarks/knowledge.py`: accuracy, mean ± standard deviation over seeds. "
        "Which of two colors has a made-up creature? Only a graph says so. No creature of the "
        "test occurs in the training data. A third of the wrong colors is that of the other "
        "creature of the text, a third what this one fears by the graph. The model is a BERT of "
        f"{SHAPE['layers']} layers and width {SHAPE['width']}, from scratch, {STEPS:,} steps of "
        f"{SAMPLES}. Goals: at least {REACHED:g} with the matrix and with guidance, and without "
        f"knowledge no more than a guess (at most {CHANCE:g}).",
        table(heads, lines),
        told(rows),
    ]
    if missed:
        parts.append(f"Missed: {', '.join(missed)}.")
    return "\n\n".join(filter(None, parts))


def told(rows: list[dict[str, Any]]) -> str:
    """Says what the figures show about the visible matrix."""
    means = {
        way: sum(scores) / len(scores)
        for way in WAYS
        if (scores := [row["test"] for row in rows if row["way"] == way])
    }
    if not {"tree", "text"} <= means.keys():
        return ""
    gap = means["tree"] - means["text"]
    judged = "better than" if gap > 0.01 else "worse than" if gap < -0.01 else "as good as"
    return (
        f"With the matrix it is {judged} with the same branches as text ({gap:+.3f}). Sentences "
        "are short here and every creature has two branches; what the matrix is for, text that is "
        "drowned by branches, this task does not show."
    )


def main() -> None:
    options = options_of(parser_for(__doc__, "knowledge", WAYS, data=False), WAYS, "way")
    if options.cell:
        write_cell(options, cell(options.only[0], options.seeds, options.few, options.cell.parent))
        return
    for seed in range(1, options.seeds + 1):
        for way in options.only:
            words = ["--only", way, "--seeds", str(seed), "--examples", str(options.few)]
            say(f"{way}-{seed} …")
            row = once(
                options.cells / f"{way}-{seed}.json",
                partial(in_process, __file__, words),
                settings(way, seed, options.few),
            )
            say(f"  {row['test']:.3f} of unseen creatures, {row['seconds']:.0f} s")
    rows = cells(options.cells, lambda row: settings(row["way"], row["seed"], options.few))
    publish(options, "knowledge", section(rows), cells=rows)


if __name__ == "__main__":
    main()
