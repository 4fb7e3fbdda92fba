"""One table of words for both ends."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained
from regard.lab.claims.engine.rules import All, Less, Ratio
from regard.lab.claims.engine.texts import python_docs

CLAIM = Claim(
    name="tying",
    statement=Said(
        "Sharing the input and output embeddings saves parameters and lowers perplexity.",
        "输入与输出共用同一张词表，既省参数，又降低困惑度。",
    ),
    source="Press & Wolf 2017, sections 3 and 5",
    setting=Said(
        "A T5 of one layer on each side learns to go on with the reference of Python, with one "
        "table of words or with two (as in its version 1.1).",
        "每边一层的 T5 学习续写 Python 参考文档：一次只用一张词表，一次用两张（如其 1.1 版）。",
    ),
    arms=("shared", "apart"),
    experiment=Trained(
        python_docs,
        common={
            "model": "t5", "size": "tiny", "batch": {"length": 128, "samples": 16},
            "objective": {"name": "prefix"}, "validation": {"samples": 200},
        },
        arms={"shared": {}, "apart": {"shape": {"tied": False, "scaled": False}}},
        steps=300,
    ),
    rule=All((
        Ratio("parameters", "shared", "apart", most=0.9),
        Less("perplexity", "shared", "apart"),
    )),
    charts=(
        Chart("perplexity", Said("perplexity", "困惑度")),
        Chart("parameters", Said("parameters", "参数量")),
    ),
    minutes=4,
    notes=(
        Said(
            "The paper measured recurrent language models and translation; two tables have more to "
            "learn from few steps, which may be the whole of the effect here.",
            "论文测的是循环语言模型与翻译；两张表在很少的步数里要学的更多，"
            "这里的效果也许全由此来。",
        ),
    ),
)  # fmt: skip
