"""The position-wise network, under another name."""

from __future__ import annotations

from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed
from regard.lab.claims.engine.rules import All, Within


def figures(arm: str, at: float, seed: int) -> dict[str, float]:
    """The network beside two convolutions over the text, of one position or of three."""
    import torch
    from torch.nn import functional as F

    from regard.attention.block import FeedForward

    draw = torch.Generator().manual_seed(seed)
    seed_torch(seed, "weights")
    network = FeedForward(32, 64, "relu").double()
    x = torch.randn(4, 10, 32, generator=draw, dtype=torch.float64)
    wide, narrow = network.wide, network.narrow
    reach = 1 if arm == "of one position" else 3

    def kernel(weight: Any) -> Any:
        around = torch.randn(*weight.shape, reach, generator=draw, dtype=torch.float64)
        around[..., reach // 2] = weight
        return around

    with torch.no_grad():
        y = F.conv1d(x.mT, kernel(wide.weight), wide.bias, padding=reach // 2).relu()
        y = F.conv1d(y, kernel(narrow.weight), narrow.bias, padding=reach // 2).mT
        return {"difference": float((y - network(x)).abs().max())}


CLAIM = Claim(
    name="feed-forward-is-convolution",
    statement=Said(
        "The position-wise network is two convolutions that see one position.",
        "逐位置前馈网络就是两个只看一个位置的卷积。",
    ),
    source="Vaswani et al. 2017, 3.3",
    setting=Said(
        "The same weights as a network and as convolutions along the text, in fp64; kernels of "
        "three positions stand beside it as a counter-example.",
        "同样的权重，一次作网络，一次作沿文本的卷积（fp64）；再用三个位置宽的卷积核作反例。",
    ),
    arms=("of one position", "of three positions"),
    experiment=Computed(figures),
    rule=All((
        Within("difference", "of one position", most=1e-12),
        Within("difference", "of three positions", least=1e-3),
    )),
    charts=(Chart("difference", Said("largest difference", "最大差别"), logarithmic=True),),
    minutes=0.1,
)  # fmt: skip
