"""Knowledge: a world in which only a graph holds the answer, and what the page says of it."""

from __future__ import annotations

from knowledge import KINDS, WAYS, examples, section, tokenizer, world

from tests.benchmarks.bilingual import check_chinese


def test_the_answer_stands_in_the_graph_alone() -> None:
    every = world(1)
    assert len({creature.name for creature in every}) == len(every) > 100
    known, records = {creature.name: creature for creature in every}, examples(90, every, 1, "test")
    words, answers = tokenizer(), []
    assert all(len(words.encode(name, special=False)) == 2 for name in known)
    for index, record in enumerate(records):
        names = [word for word in record["hypothesis"].split() if word in known]
        there = [known[word] for word in record["premise"].split() if word in known]
        other = next(creature for creature in there if creature.name != names[0])
        creature = known[names[0]]
        colors = [w for w in record["hypothesis"].split() if w in {c.color for c in every}]
        assert record["label"] == creature.color and creature in there
        wrong = next(color for color in colors if color != creature.color)
        kind = KINDS[index % len(KINDS)]
        assert (wrong == other.color) == (kind == "of the other" or other.color == wrong)
        assert (wrong == creature.fears) == (kind == "feared" or creature.fears == wrong)
        assert kind != "any" or wrong not in (other.color, creature.fears)
        answers.append(colors.index(creature.color))
        ids = words.encode(f"{record['premise']} {record['hypothesis']}", special=False)
        assert 1 not in ids  # every piece is known
    assert 30 < sum(answers) < 60  # neither the first nor the second is right more often
    assert records == examples(90, every, 1, "test")


def test_the_page() -> None:
    figures = {"none": 0.5, "tree": 0.95, "text": 0.9, "bias": 0.7, "gated": 0.6}
    rows = [
        {"way": way, "seed": seed, "test": figures[way], "seen": 1.0, "kinds": [0.5] * 3,
         "seconds": 9.0}
        for way in WAYS
        for seed in (1, 2, 3)
    ]  # fmt: skip
    text = section(rows)
    check_chinese("knowledge", text)
    assert "| branches with the visible matrix | 3 | 0.950 ± 0.000 | 0.500 ± 0.000 |" in text
    assert "better than with the same branches as text (+0.050)" in text
    assert "0.700 ± 0.000 (missed)" in text and "0.600 ± 0.000 |" in text
    assert text.endswith("Missed: guidance, a strength for each head.")
