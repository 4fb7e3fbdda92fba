"""What length costs."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed, seconds
from regard.lab.claims.engine.rules import All, Slope


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    import torch

    from regard.attention.kernels import How
    from regard.attention.pattern import Full

    draw = torch.Generator().manual_seed(seed)
    rows = int(length)
    if arm == "attention":
        q, k, v = (torch.randn(1, 4, rows, 64, generator=draw) for _ in range(3))
        return {"seconds": seconds(lambda: Full().attend(q, k, v, How(scale=0.125)))}
    x, weight = torch.randn(rows, 256, generator=draw), torch.randn(1024, 256, generator=draw)
    return {"seconds": seconds(lambda: (x @ weight.T).relu_() @ weight)}


CLAIM = Claim(
    name="quadratic",
    statement=Said(
        "The cost of full attention grows with the square of the length.",
        "全注意力的代价随长度的平方增长。",
    ),
    source="Vaswani et al. 2017, table 1",
    setting=Said(
        "Seconds of attention alone (4 heads of 64) and of a position-wise network, against the "
        "length of the text.",
        "单独的注意力（4 个 64 维的头）与逐位置网络所用的秒数，随文本长度变化。",
    ),
    arms=("attention", "network"),
    axis=Axis(Said("length", "长度"), (512, 1024, 2048, 4096, 8192), logarithmic=True),
    experiment=Computed(figures),
    rule=All((
        Slope("seconds", "attention", 1.7, 2.3, beyond=1024),
        Slope("seconds", "network", 0.8, 1.25, beyond=1024),
    )),
    charts=(Chart("seconds", Said("seconds", "秒"), logarithmic=True),),
    minutes=0.5,
    timed=True,
)  # fmt: skip
