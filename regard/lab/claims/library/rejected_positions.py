"""Why positions are not simply counted."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Followed, Found, Room
from regard.lab.claims.engine.rules import All, Less

LENGTHS = (16, 64, 256)


def lengths(arm: str, seed: int, room: Room) -> Found:
    from regard.lab.claims.engine.small import bits_at_lengths

    bits = bits_at_lengths(arm, LENGTHS, seed, room)
    return {(arm, n): {"bits_per_byte": each} for n, each in bits.items()}


CLAIM = Claim(
    name="rejected-positions",
    statement=Said(
        "Positions as raw integers, or squeezed into 0 to 1, fail where sinusoids do not.",
        "把位置直接写成整数，或压缩到 0 到 1 之间都会失败，而正弦位置不会。",
    ),
    source="tutorials, as the reason for Vaswani et al. 2017, 3.5",
    setting=Said(
        "Four GPTs that differ in their positions alone: a learned table, sinusoids, a learned "
        "vector times 0, 1, 2, …, and the same vector times numbers from 0 to 1. They learn from "
        "pieces of 64 tokens and read pieces of 16, 64 and 256.",
        "四个只在位置上不同的 GPT：学得的表、正弦、学得的向量乘 0、1、2……、同一向量乘 0 到 1 "
        "之间的数。用 64 个词元的片段训练，再读 16、64、256 的片段。",
    ),
    arms=("learned", "sinusoids", "integers", "unit"),
    axis=Axis(Said("length read", "阅读长度"), LENGTHS, logarithmic=True),
    experiment=Followed(lengths),
    rule=All(tuple(
        Less("bits_per_byte", "sinusoids", other, at=at)
        for other in ("integers", "unit")
        for at in LENGTHS
    )),
    charts=(Chart("bits_per_byte", Said("bits per byte", "每字节比特数")),),
    minutes=4,
    notes=(
        Said(
            "A number added to every component alike would be taken out again by the first norm, "
            "so here it comes with a vector.",
            "若给每个分量加同一个数，第一层归一化就会把它减掉，所以这里给它配一个向量。",
        ),
    ),
)  # fmt: skip
