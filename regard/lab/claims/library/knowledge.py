"""Facts that are put into a text, and who may see them."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.finetuning import Start, Tuned
from regard.lab.claims.engine.labelled_texts import creature_text, facts
from regard.lab.claims.engine.rules import All, Less

START = Start(
    "creatures",
    creature_text,
    {
        "model": "bert", "shape": {"layers": 3, "width": 64, "heads": 4, "hidden": 256},
        "batch": {"samples": 8, "length": 64},
        "objective": {"name": "masked", "documents": "separate"}, "validation": {"samples": 10},
    },
    steps=1,
)  # fmt: skip

CLAIM = Claim(
    name="knowledge",
    statement=Said(
        "Facts put into a text help where entities matter if only the words they belong to see "
        "them; seen by all, they harm.",
        "把事实写进文本，若只让相关的词看见，就有助于依赖实体的任务；若人人可见，则有害。",
    ),
    source="Liu et al. 2020 (K-BERT), 3.4",
    setting=Said(
        "Which of two colours has a made creature? Only a graph says so, and no creature of the "
        "test was met before. A BERT that has read nothing learns it without the graph, with its "
        "facts as branches under the visible matrix, and with the same branches seen by all.",
        "某虚构生物是两种颜色中的哪一种？只有图谱知道，且测试中的生物从未见过。没读过文本的 BERT "
        "分三种方式学习：无图谱；以可见矩阵约束的分支；同样的分支但人人可见。",
    ),
    arms=("no knowledge", "visible matrix", "seen by all"),
    experiment=Tuned(
        START, facts,
        {
            "examples": {"task": "entail"}, "batch": {"samples": 32, "length": 48},
            "optimizer": {"rate": 1e-3},
        },
        {
            "no knowledge": {},
            "visible matrix": {"objective": {"knowledge": {"graph": "{graph}", "mode": "tree"}}},
            "seen by all": {
                "objective": {
                    "knowledge": {"graph": "{graph}", "mode": "tree", "matrix": False},
                },
            },
        },
        labels=6000, steps=1000, scratch=("no knowledge", "visible matrix", "seen by all"),
    ),
    rule=All((
        Less("error", "visible matrix", "no knowledge"),
        Less("error", "no knowledge", "seen by all"),
    )),
    charts=(Chart("error", Said("share of wrong answers", "错误率")),),
    minutes=6,
)  # fmt: skip
