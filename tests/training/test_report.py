"""Report and model card: whole, readable, and safe whatever a run is called."""

from __future__ import annotations

import json
import re

import pytest

from regard.formats.directory import save
from regard.models import create
from regard.training.report import RunRecord, outcome_of, write_card, write_report
from tests.html import HOSTILE, Page

NASTY = HOSTILE + " `code` | pipe"
RECIPE = """model = "gpt"
data = "docs"

[objective]
name = "causal"

[budget]
steps = 200
"""
FACTS = {
    "model": {
        "name": "gpt", "family": "gpt", "paper": "Radford et al.", "parameters": 1234567,
        "config": {"width": 64, "layers": 2},
    },
    "objective": "causal",
    "pipeline_tag": "text-generation",
    "data": {
        "path": "/home/me/docs", "vocab_size": 8000, "tokenizer": "bpe",
        "splits": {
            "train": {"documents": 90, "tokens": 100_000, "bytes": 420_000},
            "valid": {"documents": 10, "tokens": 10_000, "bytes": 42_000},
        },
    },
    "outcome": "done",
    "progress": {"step": 200, "tokens": 409_600, "seconds": 125.0},
    "best": {"step": 150, "value": 2.0},
    "peak_memory": 1_500_000_000,
    "step_flops": 1e10,
    "gemm_peak": 4e10,
    "machine": {"system": "Linux", "torch": "2.13"},
}  # fmt: skip


def metrics():
    for step in range(1, 201):
        yield {
            "step": step, "loss": 8.0 / step**0.3, "lr": 1e-3 * (1 - step / 200),
            "tokens": 2048 * step, "seconds": 0.625 * step, "tokens_per_second": 3276.8,
        }  # fmt: skip
        if step % 50 == 0:
            figures = {"bits_per_byte": 2.0 if step == 150 else 3.0, "perplexity": 30.0}
            yield {"step": step, "tokens": 2048 * step, "valid": figures}


def make(directory, facts=FACTS, recipe=RECIPE, records=None):
    lines = [json.dumps(r) for r in (metrics() if records is None else records)]
    (directory / "metrics.jsonl").write_text("".join(f"{x}\n" for x in lines))
    (directory / "recipe.toml").write_text(recipe)
    (directory / "run.json").write_text(json.dumps(facts))
    return directory


def test_the_report_says_what_the_run_was(tmp_path):
    page = Page(write_report(make(tmp_path)).read_text())
    assert "gpt · causal" in page.text and page.data["title"] == ["gpt · causal"] * 2
    assert "Best validation: bits per byte 2 at step 150, after 307,200 tokens." in page.text
    assert "最好的验证结果：每字节比特数 2（第 150 步" in page.text
    for word in ("1,234,567", "409,600", "2 min 05 s", "1.5 GB", "40%", "steps = 200", "3,277"):
        assert word in page.text, word
    assert page.table("validation") == [[50, 3, 30], [100, 3, 30], [150, 2, 30], [200, 3, 30]]
    assert page.table("splits") == [[90, 100_000, 420_000, 4.2], [10, 10_000, 42_000, 4.2]]
    assert page.fetched == []


def test_the_charts_hold_the_numbers_of_the_run(tmp_path):
    page = Page(write_report(make(tmp_path)).read_text())
    records = list(metrics())
    steps = [r for r in records if "valid" not in r]
    assert list(page.data["charts"]) == ["loss", "validation-0", "validation-1", "lr", "speed"]
    each, mean = page.chart("loss")["lines"]
    assert each["points"] == [[r["step"], r["loss"]] for r in steps] and each["faint"]
    assert len(mean["points"]) == len(steps) and mean["points"][0] == each["points"][0]
    validated = [[r["step"], r["valid"]["bits_per_byte"]] for r in records if "valid" in r]
    assert page.chart("validation-0")["lines"][0]["points"] == validated
    assert page.chart("lr")["lines"][0]["points"] == [[r["step"], r["lr"]] for r in steps]
    assert page.chart("speed")["y"]["zero"] and page.chart("lr")["x"][0]["span"] == [1, 200]


def test_how_a_run_ended_is_said_in_both_languages():
    assert outcome_of("done") == ("done", "完成")
    assert all(len(outcome_of(each)) == 2 for each in ("out of time", "interrupted", "diverged"))
    english, chinese = outcome_of("stopped early: no better validation in 5")
    assert english == "stopped early: no better validation in 5" and "5 次验证" in chinese
    assert outcome_of("as nobody said before") == "as nobody said before"


def test_no_text_of_others_becomes_markup(tmp_path):
    facts = FACTS | {
        "model": {"name": NASTY, "paper": NASTY, "config": {NASTY: NASTY}},
        "objective": NASTY,
        "outcome": NASTY,
        "data": {"path": NASTY, "splits": {NASTY: {"tokens": 5}}},
    }
    records = [{"step": 1, "loss": 1.0}, {"step": 1, "valid": {NASTY: 3.0}}]
    make(tmp_path, facts, f"model = '''{NASTY}'''\n", records)
    page = Page(write_report(tmp_path).read_text())
    assert page.tags.count("script") == 3 and "img" not in page.tags
    assert page.text.count('</script><script>alert("1")') >= 8  # it is seen as it was written
    card = write_card(tmp_path).read_text()
    outside = re.sub(r"(?s)```.*?```", "", card.split("---", 2)[2])
    assert "<script" not in outside


@pytest.mark.parametrize("left", ["nothing", "only metrics", "broken"])
def test_what_is_missing_is_left_out(tmp_path, left):
    if left == "only metrics":
        (tmp_path / "metrics.jsonl").write_text('{"step": 3, "loss": 2.5}\n{"step": 4, "lo')
    elif left == "broken":
        make(tmp_path)
        (tmp_path / "run.json").write_text("[1, 2")
        (tmp_path / "recipe.toml").write_text("= = =")
    page = Page(write_report(tmp_path).read_text())
    card, text = write_card(tmp_path).read_text(), page.text
    if left == "nothing":
        assert "Nothing was measured." in text and page.data["charts"] == {}
        assert "curves" not in card and "model-index" not in card
    elif left == "only metrics":
        assert "Loss 2.5 at step 3; nothing was validated." in text
    else:  # without run.json the lowest first measure is the best
        assert "bits per byte 2 at step 150" in text


def test_numbers_that_are_none_do_not_stop_a_report(tmp_path):
    records = [
        {"step": 1, "loss": None, "lr": 1e-3},
        {"step": 2, "loss": 2.0, "parts": {"a": None}},
        {"step": 2, "valid": {"perplexity": None}},
        {"step": 3, "valid": {"perplexity": 4.0}},
    ]
    make(tmp_path, FACTS | {"best": None}, records=records)
    assert RunRecord.read(tmp_path).best()["step"] == 3
    Page(write_report(tmp_path).read_text())
    write_card(tmp_path)


# -- the card


def front_matter(text):
    yaml = pytest.importorskip("yaml")
    first, head, rest = text.split("---\n", 2)
    assert first == ""
    return yaml.safe_load(head), rest


def gpt(**changes):
    shape = {"width": 32, "layers": 1, "heads": 2, "vocab_size": 50, "context": 16}
    return create("gpt2", **shape | changes)


def test_a_model_that_opens_in_transformers_says_how(tmp_path):
    run = make(tmp_path)
    save(gpt(), run)
    head, text = front_matter(write_card(run).read_text())
    assert head["library_name"] == "transformers"
    assert head["pipeline_tag"] == "text-generation"
    assert head["tags"] == ["regard", "gpt", "causal"]
    assert "license" not in head
    result = head["model-index"][0]["results"][0]
    assert result["metrics"][0] == {"type": "bits_per_byte", "value": 2.0}
    assert result["dataset"]["name"] == "docs" and result["task"]["type"] == "text-generation"
    assert f"GPT2LMHeadModel.from_pretrained('{run.name}')" in text
    assert f"regard.load('{run.name}')" in text
    assert "| bits per byte | 2 |" in text and "[report.html](report.html)" in text
    assert "| train | 90 | 100,000 | 420,000 | 4.2 |" in text
    assert "[budget]\nsteps = 200" in text
    assert "- path: docs" in text and "/home/me" not in text


def test_the_code_of_the_card_runs(tmp_path, monkeypatch):
    run = make(tmp_path)
    save(gpt(), run)
    text = write_card(run).read_text()
    monkeypatch.chdir(run.parent)
    blocks = re.findall(r"(?s)```python\n(.*?)```", text)
    assert len(blocks) == 2
    for block in blocks:
        scope = {}
        exec(block, scope)
        assert sum(p.numel() for p in scope["model"].parameters()) == gpt().parameter_count()


def test_a_model_that_does_not_says_why(tmp_path):
    run = make(tmp_path)
    save(gpt(band=4), run)
    head, text = front_matter(write_card(run, license="apache-2.0").read_text())
    assert head["library_name"] == "regard" and head["license"] == "apache-2.0"
    assert "pipeline_tag" not in head
    assert "It does not open in transformers:" in text and "from_pretrained" not in text


def test_no_result_is_claimed_that_was_not_measured(tmp_path):
    run = make(tmp_path, FACTS | {"best": None}, records=[{"step": 1, "loss": 3.0}])
    assert "model-index" not in front_matter(write_card(run).read_text())[0]


def test_examples_of_a_task_are_counted(tmp_path):
    """A run that learned a task knows its examples, not their bytes: there is no empty column."""
    splits = {"train": {"examples": 1440}, "valid": {"examples": 160}}
    data = {"path": "reviews.jsonl", "splits": splits}
    directory = make(tmp_path, FACTS | {"data": data})
    text = Page(write_report(directory).read_text(encoding="utf-8")).text
    assert "1,440" in text and "样本" in text and "bytes per token" not in text
    card = write_card(directory).read_text(encoding="utf-8")
    assert "| train | 1,440 |" in card and "bytes per token" not in card
