"""Whether B follows A, or A and B are in order."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained, opened
from regard.lab.claims.engine.finetuning import ALIKE
from regard.lab.claims.engine.labelled_texts import story_text
from regard.lab.claims.engine.rules import All, Less, Provided, Within

TASKS = {"next": "trained on next", "order": "trained on order"}
LENGTH = 30


def both(run: Path, cell: Cell) -> dict[str, float]:
    """Of one model: how often each of the two questions is answered right. Pairs with either answer
    count for half, however many there are: who always says the same is right half of the time.
    """
    import torch

    from regard.objectives.sentences import Options, Sentences

    corpus, loaded = opened(run)
    model = loaded.model.eval()
    found = {}
    for task in TASKS:
        options = Options(task=task, short=0.0)
        asked = Sentences(corpus, options, length=LENGTH, batch=32, seed=1, learning=False)
        right: dict[int, list[bool]] = {0: [], 1: []}
        for first in range(0, len(asked), asked.batch):
            numbers = range(first, min(first + asked.batch, len(asked)))
            batch = asked.collate([asked.get(number) for number in numbers])
            with torch.inference_mode():
                said = model.read("next", asked.read(model, batch), batch["real"]).argmax(-1)
            for truth, answer in zip(batch["next"].tolist(), said.tolist(), strict=True):
                right[truth].append(answer == truth)
        found[task] = sum(sum(each) / len(each) for each in right.values()) / 2
    return found


CLAIM = Claim(
    name="next-sentence",
    statement=Said(
        "A model trained to tell whether a sentence comes next cannot tell whether two sentences "
        "are in order; one trained on their order can do both.",
        "只学“下一句预测”的模型判断不了句子顺序；学“句子顺序”的模型两者都能做。",
    ),
    source="Lan et al. 2020 (ALBERT), table 5",
    setting=Said(
        "Made stories of six sentences: five words of each tell the story's subject, one of 60, "
        "and three tell which of twelve stages it is at; stages rise, with gaps. A BERT of two "
        "layers guesses hidden words and one of the two questions; each is then asked both, about "
        "stories that it has not read. Pairs of either answer count for half.",
        "人造故事，各六句：每句五个词透露六十个主题之一，三个词透露处于十二个阶段的哪一个；"
        "阶段只升不降，可有跳跃。两层 BERT 学填词与两问之一，"
        "再就没读过的故事回答两问。两种答案的句对各计一半。",
    ),
    arms=tuple(TASKS.values()),
    experiment=Trained(
        story_text,
        common={
            "model": "bert",
            "shape": {"layers": 2, "width": 64, "heads": 4, "hidden": 256, "start_std": 0.1},
            "batch": {"length": LENGTH, "samples": 32},
            "optimizer": {"name": "adamw", "rate": 2e-3},
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
            "question would answer the second, too: what is tested is which cue is learned. One "
            "that only knows the order is right about three of four pairs when asked what comes "
            "next: sentences from elsewhere are of a later stage half of the time.",
            "下一句绝不会属于更早的阶段，因此第一问若答得完美，第二问也就会了："
            "检验的是模型学到哪种线索。只懂顺序的模型，被问下一句时四对里能答对三对："
            "来自别处的句子有一半属于更后的阶段。",
        ),
        Said(
            "The text was found by trials, and the claim hangs on it. Of about fifteen texts, with "
            "one seed each, the order was not learned at all where one or two of six or more words "
            "told the stage; and where the subject was harder to recognise than the stage (15 "
            "words for each, or stages without gaps), a model that learned what comes next got "
            "the order right, too (0.97 to 1.0), against the claim. A topic that is easier than "
            "the order is what makes the difference.",
            "这个文本是试出来的，结论取决于它。试过约十五种文本，各一个种子："
            "若六个以上的词里只有一两个透露阶段，顺序根本学不会；若主题比阶段更难辨认（每个主题 "
            "15 个词，或阶段没有跳跃），学下一句的模型也能答对顺序（0.97 到 1.0），"
            "与这一说法相反。差别来自主题比顺序更容易。",
        ),
    ),
)  # fmt: skip
