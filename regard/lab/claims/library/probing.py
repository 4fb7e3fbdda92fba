"""What a probe finds, and what it would find anyway."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.lab.claims.engine.claim import Axis, Cell, Chart, Claim, Experiment, Said
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.finetuning import GPT, Start
from regard.lab.claims.engine.labelled_texts import shades
from regard.lab.claims.engine.rules import All, Less, Within


@dataclass(frozen=True)
class Probed(Experiment):
    """A linear probe on one layer, which the axis names, beside its control task."""

    start: Start
    sentences: int = 1500  # of which a tenth is tested on

    def figures(self, cell: Cell, room: Room) -> dict[str, float]:
        from regard.methods.probe.experiment import probe
        from regard.methods.probe.plan import Plan

        begin = self.start.trained if cell.arm == "trained" else self.start.fresh
        model = begin(cell.seed, room)
        with TemporaryDirectory(prefix="claim-", dir=room.place) as work:
            files = shades(Path(work), cell.seed, self.sentences)
            epochs = max(1, round(100 * room.effort))
            plan = Plan(
                str(model), str(files["train"]), control=True, untrained=False, seeds=1,
                layers=[int(cell.at)], epochs=epochs,
            )  # fmt: skip
            held = probe(plan, Path(work, "probe"), quiet=True)["layers"][0]["trained"]
        return {
            "accuracy": held["task"]["accuracy"]["mean"],
            "control": held["control"]["accuracy"]["mean"],
            "selectivity": held["task"]["selectivity"]["mean"],
        }


CLAIM = Claim(
    name="probing",
    statement=Said(
        "A linear probe scores well on layers that have learned nothing; what they know shows only "
        "in selectivity, the distance to a control task.",
        "线性探针在什么都没学过的层上得分也高；层里真正知道的，只有与对照任务之差（"
        "选择性）才看得出。",
    ),
    source="Hewitt and Liang 2019",
    setting=Said(
        "Probes ask each layer of a GPT that has read made texts, and of one that has not, for the "
        "shade of a word (one of four); the control task gives each word a random class.",
        "探针向读过人造文本的 GPT 与没读过的 GPT 逐层询问词的类别（"
        "四类）；对照任务给每个词一个随机类别。",
    ),
    arms=("trained", "untrained"),
    axis=Axis(Said("layer (0: embeddings)", "层（0 为嵌入）"), (0, 1, 2, 3, 4)),
    experiment=Probed(GPT),
    rule=All((
        Within("accuracy", "untrained", least=0.4),
        Less("selectivity", "untrained", "trained", at=0),
        Less("selectivity", "untrained", "trained", at=2),
    )),
    charts=(
        Chart("accuracy", Said("accuracy", "正确率")),
        Chart("selectivity", Said("selectivity", "选择性")),
    ),
    minutes=3,
    notes=(
        Said(
            "With 500 sentences and 60 epochs, one seed, it was not reproduced; the amount was "
            "then raised, the rule was not touched.",
            "500 句、60 轮、一个种子时没有复现；随后增加了数量，规则没有改动。",
        ),
    ),
)  # fmt: skip
