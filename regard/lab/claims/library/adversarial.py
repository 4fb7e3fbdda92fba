"""Whether a harder input makes a better model."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.finetuning import GPT, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import moods
from regard.lab.claims.engine.rules import Less

CLAIM = Claim(
    name="adversarial",
    statement=Said(
        "Fine-tuning with embeddings that are moved to where the loss is higher gives a better "
        "score on clean texts.",
        "微调时把词嵌入推向损失更高处，能提高在干净文本上的得分。",
    ),
    source="Zhu et al. 2020 (FreeLB)",
    setting=Said(
        "A pre-trained GPT of four layers learns from 64 labelled sentences which mood they are "
        "of: plainly, with one step (FGM), or with two small ones (FreeLB); as many updates each.",
        "预训练的四层 GPT 用 64 个标注句学习判断情绪：普通、单步扰动（FGM）或两小步（"
        "FreeLB）；更新次数相同。",
    ),
    arms=("plain", "fgm", "freelb"),
    experiment=Tuned(
        GPT, moods, TUNING,
        {
            "plain": {}, "fgm": {"robust": {"adversary": "fgm"}},
            "freelb": {"robust": {"adversary": "freelb"}},
        },
        labels=64, steps=120,
    ),
    rule=Less("error", "freelb", "plain"),
    charts=(Chart("error", Said("share of wrong answers", "错误率")),),
    minutes=4,
)  # fmt: skip
