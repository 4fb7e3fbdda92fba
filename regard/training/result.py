"""What a training gives in Python: the facts of run.json, which show themselves in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.files import read_json
from regard.core.text import Bilingual
from regard.formats import Checkpoint
from regard.report import notebook
from regard.report.charts import smooth
from regard.report.drawings import Curves, Text
from regard.report.pages import both_of, named
from regard.training.report import RunRecord, outcome_of, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = 2  # of the validation that are drawn
NOISY = 50  # steps from which a running mean is drawn


class RunResult(notebook.ShownTable):
    """The facts of a run: `.plot()` draws its loss, a notebook shows all of its curves."""

    @classmethod
    def open(cls, directory: Path | str) -> RunResult:
        """That of a directory, which may have moved since the run."""
        return cls((read_json(Path(directory, "run.json")) or {}) | {"out": str(directory)})

    def plot(self, lang: str = "en") -> Figure:
        return self.curves()[0].plot(lang)

    def curves(self) -> list[Curves]:
        """The loss of each step, and what was validated."""
        record = RunRecord.read(Path(self["out"]))
        loss = record.points("loss")
        lines: dict[Text, Any] = {Bilingual("training", "训练"): loss}
        if len(loss) >= NOISY:
            lines = {Bilingual("training, running mean", "训练（滑动平均）"): smooth(loss)}
        up = Bilingual("loss", "损失")
        drawn = [Curves(Bilingual("loss of training", "训练损失"), lines, up=up, zero=False)]
        for name in record.measures[:MEASURES]:
            points = [(r["step"], r["valid"].get(name)) for r in record.validations]
            known = [(x, y) for x, y in points if plain(y)]
            called = both_of(named(name))
            title = Bilingual(f"validation: {called.en}", f"验证：{called.zh}")
            drawn.append(Curves(title, {called: known}, up=called, zero=False))
        return [chart for chart in drawn if all(chart.lines.values())]

    def heading(self) -> Text:
        model = self.get("model")
        name = model.get("name", "") if isinstance(model, dict) else str(model or "")
        return " · ".join(filter(None, [str(name), str(self.get("out", ""))]))

    def parts(self) -> list[notebook.Part]:
        progress, model = (
            self[key] if isinstance(self.get(key), dict) else {} for key in ("progress", "model")
        )
        best = self["best"] if isinstance(self.get("best"), dict) else {}
        rows = [
            (Bilingual("outcome", "结果"), outcome_of(self.get("outcome"))),
            (Bilingual("parameters", "参数"), model.get("parameters")),
            (Bilingual("steps", "步数"), progress.get("step")),
            (Bilingual("tokens", "词元"), progress.get("tokens")),
            (Bilingual("seconds", "秒"), progress.get("seconds")),
            (Bilingual("best validation", "最好的验证"), best.get("value")),
            (Bilingual("at step", "在第几步"), best.get("step")),
        ]
        facts = notebook.Facts([(name, value) for name, value in rows if value is not None])
        charts = self.curves() if "outcome" in self and "out" in self else []
        return [facts, *([notebook.CurveCharts(charts)] if charts else [])]


def model_html(loaded: Checkpoint) -> str:
    """Returns the display of a loaded model: its sizes, and its training if it is a run."""
    facts = {"parameters": loaded.model.parameter_count()}
    for name in ("layers", "width", "heads", "context", "vocab_size"):
        if hasattr(loaded.config, name):
            facts[name] = getattr(loaded.config, name)
    parts: list[notebook.Part] = [notebook.facts_of(facts)]
    title = loaded.model.family.name
    if loaded.path is not None:
        title += f" · {loaded.path}"
        if (loaded.path / "run.json").is_file():
            parts += RunResult.open(loaded.path).parts()
    return notebook.rendered(title, *parts)
