"""A WordNet of a few words in the format of the real one, a list of synonyms, and tiny models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.api import load
from regard.data.examples import TextPair
from regard.evaluation.text_predictor import TextPredictor
from regard.formats.directory import save
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from tests.tasks import tuning

TYPES = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
LICENCE = "  1 This software and database is being provided to you, the LICENSEE, by  \n  2 us.  \n"
SETS: dict[str, list[list[str]]] = {
    "noun": [["film", "movie", "motion_picture"], ["film", "cinema"], ["mouse"], ["box", "loge"]],
    "verb": [["film", "shoot"], ["run", "hurry"], ["like", "Love"]],
    "adj": [["good(p)", "full"], ["big", "large(a)"], ["fine", "all_right"]],
    "adv": [["well", "good"]],
}
ODD = {"noun": {"mice": "mouse"}, "verb": {"ran": "run"}}


def wordnet(
    place: Path,
    sets: Mapping[str, Sequence[Sequence[str]]] = SETS,
    odd: Mapping[str, Mapping[str, str]] = ODD,
) -> Path:
    """index.*, data.* and *.exc; offsets are bytes, and index lines have pointers to step over."""
    place.mkdir(parents=True, exist_ok=True)
    for part, kind in TYPES.items():
        text, senses = LICENCE, dict[str, list[int]]()
        for words in sets.get(part, ()):
            offset = len(text.encode())
            members = " ".join(f"{word} 0" for word in words)
            text += (
                f"{offset:08d} 03 {kind} {len(words):02x} {members} 001 @ 00000000 n 0000 | gloss\n"
            )
            for word in words:
                senses.setdefault(word.partition("(")[0].lower(), []).append(offset)
        (place / f"data.{part}").write_text(text, encoding="utf-8")
        lines = [
            f"{word} {kind} {len(at)} 2 @ ~ {len(at)} 0 {' '.join(f'{o:08d}' for o in at)}  \n"
            for word, at in sorted(senses.items())
        ]
        (place / f"index.{part}").write_text(LICENCE + "".join(lines), encoding="utf-8")
        if part in odd:
            members = "".join(f"{word} {base}\n" for word, base in sorted(odd[part].items()))
            (place / f"{part}.exc").write_text(members, encoding="utf-8")
    return place


def listed(file: Path, *lines: str) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


class Dice:
    """Throws what it is told: `permutation` keeps the order, `integers` and `random` take the next
    number of a list.
    """

    def __init__(self, *throws: float) -> None:
        self.throws: Iterator[float] = iter(throws)

    def permutation(self, count: int) -> list[int]:
        return list(range(count))

    def integers(self, high: int) -> int:
        throw = int(next(self.throws))
        assert 0 <= throw < high
        return throw

    def random(self, count: int | None = None) -> Any:
        if count is None:
            return next(self.throws)
        return [next(self.throws) for _ in range(count)]


def translator(place: Path, family: str, seed: int) -> Path:
    """A directory of random weights that makes some words of others."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": len(tuning.WORDS), "width": 16, "layers": 1, "heads": 2, "ffn_size": 32,
        "dropout": 0.0, "pad_id": 0, "start_id": 0, "eos_id": 3,
    }  # fmt: skip
    model: Any = Transformer(TransformerConfig(**shape))
    if family == "t5":
        model = T5(T5Config(**shape, head_size=8))
    model.initialize()
    with torch.no_grad():  # so large that it does not end at once
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(6.0)
    return save(model, place, tuning.tokenizer())


def fates(model: str) -> tuple[dict[str, str], list[str]]:
    """What a translator makes of some texts, and those that it makes nothing of."""
    texts = [f"{first} {second}" for first in tuning.OTHERS for second in tuning.GOOD]
    ask = TextPredictor(load(model), task="translate", prefix="", num_beams=2)
    translations = [str(one.value).strip() for one in ask([TextPair(text) for text in texts])]
    pairs = list(zip(texts, translations, strict=True))
    return {text: new for text, new in pairs if new}, [text for text, new in pairs if not new]
