"""How many heads are best."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained
from regard.lab.claims.engine.rules import Peak
from regard.lab.claims.engine.texts import python_docs

CLAIM = Claim(
    name="heads",
    statement=Said(
        "A single head is worse than the best number of heads, and too many are worse, too.",
        "单头比最佳头数差，头太多也会变差。",
    ),
    source="Vaswani et al. 2017, table 3, rows (A)",
    setting=Said(
        "A GPT of two layers and width 128 reads the reference of Python; only the number of heads "
        "changes, and with it the width of each.",
        "两层、宽 128 的 GPT 读 Python 参考文档；只改变头数，每个头的宽度随之改变。",
    ),
    arms=("gpt",),
    axis=Axis(Said("heads", "头数"), (1, 2, 4, 8, 32), logarithmic=True),
    experiment=Trained(
        python_docs,
        common={
            "model": "gpt", "size": "tiny", "batch": {"length": 128, "samples": 16},
            "objective": {"name": "causal"}, "validation": {"samples": 200},
        },
        arms={"gpt": {}},
        along="shape.heads",
        steps=250,
    ),
    rule=Peak("bits_per_byte", "gpt"),
    charts=(Chart("bits_per_byte", Said("bits per byte", "每字节比特数")),),
    printed={"gpt": "BLEU 24.9 with 1 head, 25.8 with 8, 25.4 with 32"},
    minutes=6,
)  # fmt: skip
