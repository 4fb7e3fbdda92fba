"""The speed of translating: a trained translator in int8 beside CTranslate2 in int8, same weights.

    python benchmarks/translate_speed.py --data DIR [--minutes 8]      # trains a translator first
    python benchmarks/translate_speed.py --data DIR --shape t5         # of T5's shape, not Marian's
    python benchmarks/translate_speed.py --model RUN --held held.jsonl --json FILE

A translator is trained as benchmarks/translate.py trains ours (English to Chinese of Tatoeba), or
given with --model. Both sides translate the same 1,000 held-out sentences of mixed length, given in
any order, greedily and with 4 beams; both get all of them at once and sort and batch them by tokens
themselves. Our side is `predict`'s: text to text, with its tokenizer; CTranslate2 gets and returns
tokens, and the time of the same tokenizer is added to it. Each side stands in a process of its own;
they take turns, and medians are reported. Goals: 1.3 times CTranslate2's speed, and the same BLEU
(within 0.3). The file of --json keeps the rows of the other shape.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from measure import Apart, interleaved, median
from page import replace
from translate import prepare
from translate_sides import TOKENS, Job, Timed

from regard.api import load
from regard.data.examples import TextPair
from regard.evaluation.text_predictor import TextPredictor
from regard.exports.run import export
from regard.metrics.text import TranslationMetric
from regard.models.extensions import extend

SENTENCES, AT_ONCE = 1000, 4096  # AT_ONCE: the tokens of a batch of CTranslate2
DECODINGS = {"greedy": 1, "beam 4": 4}
SHAPES = {"marian": "transformer", "t5": "t5"}  # the families that have them
GOAL, NOISE = 1.3, 0.3
Translate = Callable[[list[str]], list[str]]


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def trained(options: Any, place: Path) -> tuple[Path, Path]:
    """Trains a translator, and returns its directory and the held-out pairs."""
    from regard.training.data import TextData
    from regard.training.parallel import ProcessGroup
    from regard.training.plan import prepare as planned
    from regard.training.progress import watch
    from regard.training.run import settings

    prepare(options.data, place, 0, Job.vocabulary)
    job = Job(place, 1, options.minutes, options.steps, "bf16", model=SHAPES[options.shape])
    run, cpu = place / ("run" if options.shape == "marian" else "run-t5"), torch.device("cpu")
    if not (run / "config.json").is_file():
        with settings(cpu):
            shown = watch("plain")
            plan = planned(job.recipe(), ProcessGroup(), cpu, shown.note, resumed=False,
                           data=TextData())  # fmt: skip
            training = Timed(plan, run, ProcessGroup(), shown, "")
            training.minutes = 0.0 if job.steps else job.minutes
            training.go(resume=False)
    return run, place / "held.jsonl"


# -- the sides


def ours(directory: Path, beams: int) -> Translate:
    loaded = load(directory)
    extend(loaded.model, "int8", {"kind": "dynamic"})
    predictor = TextPredictor(loaded, num_beams=beams, max_new_tokens=TOKENS)
    return lambda texts: [str(p.value) for p in predictor([TextPair(text) for text in texts])]


def ctranslate2(directory: Path, beams: int) -> Translate:
    import ctranslate2 as ct

    loaded = load(directory)
    predictor = TextPredictor(loaded, num_beams=beams, max_new_tokens=TOKENS)  # for its tokenizer
    tokenizer = predictor.tokenizer
    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "exported")
        export(loaded, "ctranslate2", out, "int8")
        translator = ct.Translator(str(out), device="cpu", compute_type="int8", inter_threads=1,
                                   intra_threads=torch.get_num_threads())  # fmt: skip
    words = {i: word for word, i in tokenizer.ready.get_vocab().items()}
    ids = {word: i for i, word in words.items()}

    def translate(texts: list[str]) -> list[str]:
        sources, _ = predictor.scribe.sources([TextPair(text) for text in texts], predictor.room)
        results = translator.translate_batch(
            [[words[i] for i in source] for source in sources], beam_size=beams,
            max_batch_size=AT_ONCE, batch_type="tokens", max_decoding_length=TOKENS,
        )  # fmt: skip
        return [tokenizer.decode([ids[w] for w in r.hypotheses[0]]).strip() for r in results]

    return translate


SIDES = {"ours": ours, "ctranslate2": ctranslate2}


def step(side: str, directory: Path, beams: int, texts: list[str], out: Path) -> Callable[[], None]:
    """Returns a step that translates all texts and writes them to a file."""
    translate = SIDES[side](directory, beams)

    def run() -> None:
        begun = time.perf_counter()
        written = translate(texts)
        seconds = time.perf_counter() - begun
        out.write_text(json.dumps([seconds, written]), encoding="utf-8")

    return run


def measure(directory: Path, pairs: Path, options: Any) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in pairs.read_text("utf-8").splitlines()][: options.sentences]
    texts, gold = [row["source"] for row in rows], [row["target"] for row in rows]
    lines = []
    for name, beams in DECODINGS.items():
        with tempfile.TemporaryDirectory() as scratch:
            files = {side: Path(scratch, side) for side in SIDES}
            steps = {
                side: Apart(step, side, directory, beams, texts, file, keep=True)
                for side, file in files.items()
            }
            times = interleaved(steps, options.repeats, 1)
            for one in steps.values():
                one.close()
            written = {side: json.loads(file.read_text("utf-8"))[1] for side, file in files.items()}
        line: dict[str, Any] = {"shape": options.shape, "decoding": name, "sentences": len(texts),
                                "goal": GOAL}  # fmt: skip
        for side, values in times.items():
            metric = TranslationMetric(gold, written[side], language="zh")
            line[side] = {"sentences_per_second": len(texts) / median(values),
                          "bleu": float(metric.figures["bleu"])}  # fmt: skip
        both = [line[side]["sentences_per_second"] for side in ("ours", "ctranslate2")]
        line["ratio"] = both[0] / both[1]
        line["same"] = sum(a == b for a, b in zip(*written.values(), strict=True)) / len(texts)
        near = line["ours"]["bleu"] >= line["ctranslate2"]["bleu"] - NOISE
        line["reached"] = line["ratio"] >= GOAL and near
        say(json.dumps(line))
        lines.append(line)
    return lines


def keep(file: Path, result: dict[str, Any]) -> None:
    """Writes the rows, and those of the file that were not measured again."""

    def key(row: dict[str, Any]) -> tuple[str, str]:
        return row.get("shape", "marian"), row["decoding"]

    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []
    rows = {key(row): row for row in (*before, *result["rows"])}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace(file, json.dumps(result | {"rows": [*rows.values()]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--out", type=Path, default=Path("results/translate"))
    parser.add_argument("--shape", choices=SHAPES, default="marian")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=0, help="in the place of minutes: to try it")
    parser.add_argument("--model", type=Path, help="a translator in the place of a new one")
    parser.add_argument("--held", type=Path, help="its held-out pairs, as JSON lines")
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.model is None and options.data is None:
        parser.error("give the data with --data DIR, or a translator with --model and --held")
    if options.model is not None and options.held is None:
        parser.error("give the held-out pairs of the model with --held FILE")
    pair = (options.model, options.held) if options.model else trained(options, options.out)
    result = {"threads": torch.get_num_threads(), "rows": measure(*pair, options)}
    for row in result["rows"]:
        print(
            f"{row['shape']} {row['decoding']:<8} {row['ratio']:.2f} times CTranslate2 "
            f"(goal {GOAL})"
        )
    if options.json:
        keep(options.json, result)


if __name__ == "__main__":
    main()
