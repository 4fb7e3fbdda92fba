"""Compares what a runtime computes with what the model computes, on texts of several lengths."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.core.errors import InputError, counted
from regard.core.seeding import keyed
from regard.data.builtin import python_docs
from regard.evaluation.embeddings import embed
from regard.exports.base import ExportDiffers, ExportSample, ExportSource, Runtime

AGREEMENT, PERPLEXITY, COSINE = 0.9, 1.05, 0.99  # of int8: least, most, least
LENGTHS = (1, 2, 7, 20, 45, 100, 300)  # tokens
WRITTEN = (1, 4, 2, 12, 9, 30, 60)  # tokens of the decoder of an encoder-decoder
CONTINUED = 12  # tokens that are written greedily
HOSTILE = (  # texts on which tokenizers part
    "", " ", "  two  spaces ", "\n", "\t\ttabs\r\n\r\nlines\n\n\n", "don't we'll I'm he'd YOU'RE",
    "I saw 3 cats, 1234567890 dogs & 2.5e-7 £ of €!", "ÀÉÎõü naïve Straße ŒUVRE ﬁne ½ ①",
    "e\u0301 combining A\u030a, zero\u200bwidth \u00a0no-break\u3000wide",
    "中文和English混排,没有空格。",
    "日本語のテキスト、カタカナ", "한국어 문장입니다", "ภาษาไทยไม่มีช่องว่าง",
    "नमस्ते दुनिया", "مرحبا بالعالم",
    "🙂👩‍👩‍👧‍👦 emoji🏳️‍🌈!", "def f(x):\n    return x**2  # squares\n",
    "http://example.com/a?b=c&d=%20#e", "a" * 90, "ab" * 20 + "中" * 40, "!" * 40, "...---...",
    "\u0001control\u007f", "\ufeffmark \ufffd",
)  # fmt: skip


def samples_of(source: ExportSource, texts: tuple[str, ...] = ()) -> list[ExportSample]:
    """Returns texts of several lengths: pieces of real text, or random tokens if there is no
    tokenizer."""
    most = source.context or max(LENGTHS)
    lengths = [n for n in LENGTHS if n <= most] or [most]
    if most < max(LENGTHS) and most not in lengths:
        lengths.append(most)
    vocab_size: int = source.config.vocab_size
    ids = stream(source, texts, sum(lengths) + sum(WRITTEN))
    ids = [token for token in ids if token < vocab_size]
    samples = []
    for number, length in enumerate(lengths):
        tokens, ids = ids[:length], ids[length:]
        if source.kind != "encoder-decoder":
            samples.append(ExportSample(tokens))
            continue
        after = WRITTEN[number % len(WRITTEN)]
        written, ids = [source.config.start_id, *ids[: after - 1]], ids[after:]
        samples.append(ExportSample(tokens, written))
    return samples


def stream(source: ExportSource, texts: tuple[str, ...], count: int) -> list[int]:
    """Returns at least `count` tokens of text."""
    if source.tokenizer is None or source.tokenizer.fast is None:
        dice = keyed(0, "export")
        return [int(token) for token in dice.integers(0, source.config.vocab_size, count)]
    ids: list[int] = []
    for text in texts or python_docs():
        ids += source.tokenizer.encode(text[:4000], special=False)
        if len(ids) >= count:
            return ids
    if not ids:
        raise InputError("the texts hold no token; give longer texts")
    return (ids * (count // len(ids) + 1))[:count]


@dataclass
class Agreement:
    """The figures of a comparison, and the first difference if there is one."""

    quantity: str
    texts: list[int]  # their lengths
    difference: float | None = None  # the largest one, as a share of the largest number of its text
    tolerance: float | None = None
    tokens: int | None = None  # written greedily, and equal
    agreement: float | None = None  # the share of rows with the same most probable token
    perplexity: list[float] | None = None  # ours, theirs
    cosine: float | None = None
    tokenizer: str = "none"

    def table(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None}


def compared(
    source: ExportSource,
    runtime: Runtime,
    precision: str,
    tolerance: float,
    texts: tuple[str, ...] = (),
) -> Agreement:
    """Lets both sides read the same texts. Raises ExportDiffers where they part."""
    if runtime.quantity == "vectors":
        return compared_vectors(source, runtime, tolerance, texts)
    samples = samples_of(source, texts)
    result = Agreement(runtime.quantity, [len(sample.input_ids) for sample in samples])
    ours = [source.answer(sample, runtime.quantity) for sample in samples]
    theirs = [runtime.rows(sample) for sample in samples]
    if precision == "fp32":
        result.tolerance = tolerance
        sides = [("", theirs)]
        if runtime.batches:
            sides.append(("in a batch with other texts, ", runtime.batch(samples)))
        result.difference = max(
            differing(*each, tolerance, how)
            for how, answers in sides
            for each in zip(samples, ours, answers, strict=True)
        )
        if source.writes and runtime.quantity == "logits":
            result.tokens = same_tokens(source, runtime, samples, tolerance)
    else:
        check_close(source, result, samples, ours, theirs)
    result.tokenizer = same_ids(source, runtime)
    return result


def compared_vectors(
    source: ExportSource, runtime: Runtime, tolerance: float, texts: tuple[str, ...]
) -> Agreement:
    """Lets both sides turn texts into vectors, hostile ones too."""
    pieces = [text[: 6 * length] for text, length in zip(python_docs(), LENGTHS, strict=False)]
    chosen = [*(texts or pieces), *HOSTILE]
    with warnings.catch_warnings(action="ignore"):  # texts are cut on both sides
        ours = embed(source.checkpoint, chosen)
    theirs = runtime.vectors(chosen)
    assert source.tokenizer is not None
    rows = [source.tokenizer.encode(text) for text in chosen]
    result = Agreement("vectors", [len(ids) for ids in rows], tolerance=tolerance)
    result.difference = max(
        differing(ExportSample(ids), ours[i][None], theirs[i][None], tolerance)
        for i, ids in enumerate(rows)
    )
    return result


def differing(
    sample: ExportSample, ours: np.ndarray, theirs: np.ndarray, tolerance: float, how: str = ""
) -> float:
    """Returns the relative difference; refuses one that is too large, and shows the first."""
    where = f"{how}a text of {counted(len(sample.input_ids), 'token')}"
    if ours.shape != theirs.shape:
        raise ExportDiffers(
            f"the runtime returns {list(theirs.shape)} numbers for {where}, the model "
            f"{list(ours.shape)}; nothing is kept"
        )
    scale = float(np.abs(ours[np.isfinite(ours)]).max(initial=1e-30))
    gap = np.abs(ours.astype(np.float64) - theirs)
    gap = np.where(np.isneginf(ours) & np.isneginf(theirs), 0.0, gap) / scale
    wrong = ~(gap <= tolerance)  # NaN is wrong, too
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise ExportDiffers(
            f"the runtime does not compute the same: for {where}, row {row}, column {column} is "
            f"{theirs[row, column]:.6g} and should be {ours[row, column]:.6g} (of "
            f"{wrong.size:,} numbers {int(wrong.sum()):,} differ by more than {tolerance:g} of the "
            "largest); nothing is kept"
        )
    return float(gap.max(initial=0.0))


def same_tokens(
    source: ExportSource, runtime: Runtime, samples: list[ExportSample], tolerance: float
) -> int:
    """Writes on greedily after some texts; returns how many tokens were compared."""
    count = 0
    for sample in samples[1::2]:
        room = CONTINUED
        if source.context is not None:
            room = min(room, source.context - len(sample.written))
        tokens = runtime.continued(sample, room) if room > 0 else []
        for number, token in enumerate(tokens):
            scores = source.answer(sample, "logits")[-1]
            best = int(scores.argmax())
            tie = scores[best] - scores[token] <= tolerance * np.abs(scores).max()
            if token != best and not tie:
                raise ExportDiffers(
                    f"written greedily after {counted(len(sample.written), 'token')}, token "
                    f"{number + 1} is {token} and should be {best}; nothing is kept"
                )
            count += 1
            sample = sample.extended(token)
    return count


def check_close(
    source: ExportSource,
    result: Agreement,
    samples: list[ExportSample],
    ours: list[np.ndarray],
    theirs: list[np.ndarray],
) -> None:
    """Measures how near a quantized export is, and refuses one that is too far away."""
    for sample, a, b in zip(samples, ours, theirs, strict=True):
        if a.shape != b.shape or not np.isfinite(b[np.isfinite(a)]).all():
            raise ExportDiffers(
                f"the runtime returns {list(b.shape)} numbers for a text of "
                f"{counted(len(sample.input_ids), 'token')}, not all of them finite, and the model "
                f"{list(a.shape)}; nothing is kept"
            )
    first, second = (np.concatenate(sides).astype(np.float64) for sides in (ours, theirs))
    if result.quantity == "hidden states":
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        result.cosine = float(np.mean((first * second).sum(1) / norms))
        if not result.cosine >= COSINE:
            raise ExportDiffers(
                f"the cosine of the hidden states is {result.cosine:.4f} with int8, less than "
                f"{COSINE}; export in fp32; nothing is kept"
            )
        return
    result.agreement = float(np.mean(first.argmax(1) == second.argmax(1)))
    if source.writes:
        result.perplexity = [perplexity(samples, ours), perplexity(samples, theirs)]
    worse = result.perplexity is not None and (
        not result.perplexity[1] <= PERPLEXITY * result.perplexity[0]
    )
    if worse or result.agreement < AGREEMENT:
        sides = "" if result.perplexity is None else " (perplexity {:.2f} → {:.2f})".format(
            *result.perplexity
        )  # fmt: skip
        raise ExportDiffers(
            f"with int8 the most probable answer is the same in {result.agreement:.1%} of "
            f"{len(first):,} rows{sides}; at least {AGREEMENT:.0%} is expected, and a perplexity "
            f"of at most {PERPLEXITY} times the model's; export in fp32; nothing is kept"
        )


def perplexity(samples: list[ExportSample], logits: list[np.ndarray]) -> float:
    """Returns the perplexity of the texts, of which row i predicts token i + 1."""
    nats, count = 0.0, 0
    for sample, scores in zip(samples, logits, strict=True):
        targets = sample.written[1:]
        rows = scores[: len(targets)].astype(np.float64)
        rows = rows - rows.max(1, keepdims=True) if len(rows) else rows
        log_p = rows - np.log(np.exp(rows).sum(1, keepdims=True))
        nats -= float(log_p[np.arange(len(targets)), targets].sum())
        count += len(targets)
    return float(np.exp(min(nats / max(count, 1), 700.0)))


def same_ids(source: ExportSource, runtime: Runtime) -> str:
    """Compares the ids of texts on which tokenizers part, if the export holds a tokenizer."""
    if source.tokenizer is None or runtime.tokens("a") is None:
        return "none"
    for text in HOSTILE:
        ids, expected = runtime.tokens(text), source.tokenizer.encode(text, special=False)
        if ids != expected:
            raise ExportDiffers(
                f"the tokenizer of the export reads {text!r} as {ids}, and ours as {expected}; "
                "nothing is kept"
            )
    return f"the same ids for {len(HOSTILE)} hostile texts"
