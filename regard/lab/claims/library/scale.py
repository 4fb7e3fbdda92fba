"""Loss against size."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Trained
from regard.lab.claims.engine.rules import All, Rising, Slope, Straight
from regard.lab.claims.engine.texts import python_docs

CLAIM = Claim(
    name="scale",
    statement=Said(
        "The loss falls as a power of the size of the model.",
        "损失随模型规模按幂律下降。",
    ),
    source="Kaplan et al. 2020, section 3; Brown et al. 2020, figure 3.1",
    setting=Said(
        "Six GPTs of two layers, from width 8 to width 256 (the parameters beside the embeddings "
        "grow with the square: 1,536 to 1,572,864), read the same tokens of the reference of "
        "Python.",
        "六个两层的 GPT，宽度从 8 到 256（词表以外的参数随宽度平方增长：1,536 到 1,572,864），"
        "读同样多的 Python 参考文档。",
    ),
    arms=("gpt",),
    axis=Axis(Said("width", "宽度"), (8, 16, 32, 64, 128, 256), logarithmic=True),
    experiment=Trained(
        python_docs,
        common={
            "model": "gpt", "shape": {"layers": 2, "heads": 2},
            "batch": {"length": 64, "samples": 16}, "objective": {"name": "causal"},
            "validation": {"samples": 200},
        },
        arms={"gpt": {}},
        along="shape.width",
        steps=300,
        whole=("shape.width",),
    ),
    rule=All((
        Rising("bits_per_byte", "gpt", falls=True),
        Slope("bits_per_byte", "gpt", -0.4, -0.04),
        Straight("bits_per_byte", "gpt", 0.05),
    )),
    charts=(Chart("bits_per_byte", Said("bits per byte", "每字节比特数"), logarithmic=True),),
    minutes=4,
    notes=(
        Said(
            "The published exponent for parameters is 0.076, of models trained to their end on far "
            "more text; here all sizes stop after the same few steps. The exponent in the width is "
            "twice that in the parameters.",
            "已发表的参数量指数是 0.076，那些模型在多得多的文本上训练到头；"
            "这里各规模都只走同样少的步数。以宽度计的指数是以参数计的两倍。",
        ),
    ),
)  # fmt: skip
