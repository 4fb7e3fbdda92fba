"""Whether B follows A, or A and B are in order."""

from __future__ import annotations

from pathlib import Path

from regard.claims.claim import Cell, Chart, Claim, Said
from regard.claims.experiment import Trained
from regard.claims.labelled_texts import story_text
from regard.claims.rules import All, Less, Within
from regard.claims.tuned import ALIKE, Provided

TASKS = {"next": "trained on next", "order": "trained on order"}
LENGTH = 24


def both(run: Path, cell: Cell) -> dict[str, float]:
    """Of one model: how often each of the two questions is answered right."""
    import torch

    from regard.exchange.directory import load
    from regard.objectives.sentences import Options, Sentences
    from regard.text.corpus import Corpus
    from regard.training import recipe as recipes
    from regard.training.learner import Learner
    from regard.training.parallel import Group
    from regard.training.validate import validate

    model = load(run).model
    corpus = Corpus.open(Path(recipes.read(run / "recipe.toml")["data"]), "valid")
    found = {}
    for task in TASKS:
        options = Options(task=task, short=0.0)
        asked = Sentences(corpus, options, length=LENGTH, batch=32, seed=1, learning=False)
        learner, device = Learner(model, asked), torch.device("cpu")
        figures = validate(learner, asked, Group(), device, "fp32", samples=1000)
        found[task] = figures["next_accuracy"]
    return found


CLAIM = Claim(
    name="next-sentence",
    statement=Said(
        "A model trained to tell whether a sentence comes next cannot tell whether two sentences "
        "are in order; one trained on their order can do both.",
        "只学“下一句预测”的模型判断不了句子顺序；学“句子顺序”的模型两者都能做。",
    ),
    source="Lan et al. 2020 (ALBERT)",
    setting=Said(
        "Made stories of six sentences: five words of each tell the story's subject, one of six, "
        "and one word tells which of six stages it is at. A BERT "
        "of three layers guesses hidden words and one of the two questions; each is then asked "
        "both, about stories that it has not read.",
        "人造故事，各六句：每句五个词透露六个主题之一，一个词透露处于六个阶段的哪一个。"
        "三层 BERT 学填词与两问之一，"
        "再就没读过的故事回答两问。",
    ),
    arms=tuple(TASKS.values()),
    experiment=Trained(
        story_text,
        common={
            "model": "bert", "shape": {"layers": 3, "width": 64, "heads": 4, "hidden": 256},
            "batch": {"length": LENGTH, "samples": 32},
            "optimizer": {"name": "adamw", "rate": 1e-3},
            "schedule": {"name": "linear", "warmup": 0.1},
        } | ALIKE,
        arms={
            arm: {"objective": {"name": "sentences", "task": task, "dynamic": True, "short": 0.0}}
            for task, arm in TASKS.items()
        },
        steps=1500,
        look=both,
    ),
    rule=Provided(
        All((
            Within("next", "trained on next", least=0.65),
            Within("order", "trained on order", least=0.65),
        )),
        All((
            Within("order", "trained on next", most=0.6),
            Within("next", "trained on order", least=0.6),
            Less("order", "trained on next", "trained on order"),
        )),
    ),
    charts=(
        Chart("next", Said("right about what comes next", "下一句预测正确率")),
        Chart("order", Said("right about the order", "句子顺序正确率")),
    ),
    minutes=6,
    notes=(
        Said(
            "A next sentence is never of an earlier stage, so that a perfect answer to the first "
            "question would answer the second, too: what is tested is which cue is learned.",
            "下一句绝不会属于更早的阶段，因此第一问若答得完美，"
            "第二问也就会了：检验的是模型学到哪种线索。",
        ),
        Said(
            "In a first version of the text, with more words that tell the order, a model trained "
            "on the next sentence got the order right, too (0.98, one seed), against the claim.",
            "在文本的第一个版本里（表示顺序的词更多），只学下一句的模型也能答对顺序（0.98，一个种子），"
            "与这一说法相反。",
        ),
    ),
)  # fmt: skip
