"""Probing: what a probe finds in a trained model, and what it would find anyway."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.lab.claims.engine.claim import ClaimCell, ClaimExperiment
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.finetuning import GPT, PretrainedStart
from regard.lab.claims.engine.labeled_texts import shades


@dataclass(frozen=True)
class Probed(ClaimExperiment):
    """A linear probe on the layer that the axis names, with its control task."""

    start: PretrainedStart
    sentences: int = 1500  # a tenth of them is the test set

    def figures(self, cell: ClaimCell, room: Workspace) -> dict[str, float]:
        from regard.methods.probe.experiment import probe
        from regard.methods.probe.plan import ProbePlan

        begin = self.start.trained if cell.arm == "trained" else self.start.fresh
        model = begin(cell.seed, room)
        with TemporaryDirectory(prefix="claim-", dir=room.place) as work:
            files = shades(Path(work), cell.seed, self.sentences)
            epochs = max(1, round(100 * room.effort))
            plan = ProbePlan(
                str(model), str(files["train"]), control=True, untrained=False, seeds=1,
                layers=[int(cell.at)], epochs=epochs,
            )  # fmt: skip
            layer = probe(plan, Path(work, "probe"), quiet=True)["layers"][0]["trained"]
        return {
            "accuracy": layer["task"]["accuracy"]["mean"],
            "control": layer["control"]["accuracy"]["mean"],
            "selectivity": layer["task"]["selectivity"]["mean"],
        }


EXPERIMENT = Probed(GPT)
