"""Small questions and passages, and tiny models that can be asked them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from regard.core.seeding import keyed
from regard.data.examples import AnswerSpan as Gold
from regard.data.examples import Question
from regard.data.problems import FileLine
from regard.data.tokenizer import word_pieces
from regard.formats.directory import save
from regard.tasks.answer_objective import AnswerObjective, AnswerOptions
from regard.tasks.base import Prediction
from regard.tasks.corpus import TaskCorpus
from tests.tasks.tuning import STILL, declared, tiny

MARKS = "[PAD] [UNK] [CLS] [SEP] [BOS] [EOS] [MASK]".split()
WORDS = "a b c d e f g h i j q r here where".split()
PIECES = [*MARKS, *WORDS, *"你好世界北京在哪里中国"]
PAD, _, CLS, SEP, BOS = range(5)
FAMILIES = ("bert", "longformer", "gpt", "xlnet")
SIZE: dict[str, Any] = {
    "vocab_size": len(PIECES),
    "width": 32,
    "layers": 2,
    "heads": 2,
    "ffn_size": 64,
}


ROLES = dict(zip("pad unk cls sep bos eos mask".split(), MARKS, strict=True))
TOKENIZER = declared(word_pieces(PIECES), ROLES)


def asked(
    passage: str, *answers: tuple[str, int], impossible: bool = False, question: str = "q r"
) -> Question:
    made = tuple(Gold(*answer) for answer in answers)
    return Question(question, passage, made, impossible, FileLine("squad.json", 7), "one")


def objective(
    family: str, examples: Sequence[Question], length: int = 9, split: str = "train", **options: Any
) -> AnswerObjective:
    held = TaskCorpus("answer", examples, TOKENIZER, split=split)
    given = AnswerOptions(family=family, **({"stride": 2} | options))
    learning = split == "train"
    return AnswerObjective(held, given, length=length, batch=4, seed=1, learning=learning)  # type: ignore[arg-type]


def batch_of(objective: AnswerObjective) -> dict[str, Tensor]:
    return objective.collate([objective.sample(0, i) for i in range(len(objective))])


def model_of(family: str, dtype: torch.dtype = torch.float32, **heads: int) -> Any:
    torch.manual_seed(3)
    options = SIZE | STILL | {"context": 40, "head_size": 16, "window": 8}
    own = {} if family == "xlnet" else {"pad_id": PAD}
    usual = {"span": 0} if family == "xlnet" else {"answer": 2}
    made = tiny(family, heads or usual, **options, **own)
    made.initialize()
    for parameter in made.parameters():  # so that scores differ well
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made.to(dtype).eval().requires_grad_(False)


def words(ids: Tensor) -> str:
    return " ".join(TOKENIZER.tokens(ids.tolist()))


SIX = asked("a b c d e f", ("e f", 8))


def long_ones(count: int, impossible: bool = False) -> list[Question]:
    """Passages of different lengths, answers of one to three words."""
    made = []
    for number in range(count):
        dice = keyed("answers", number)
        letters = dice.choice(list("abcdefg"), size=int(dice.integers(5, 16)))
        first = int(dice.integers(len(letters) - 3))
        text = " ".join(letters)
        answer = text[2 * first : 2 * (first + int(dice.integers(1, 4))) - 1]
        if impossible and number % 3 == 0:
            made.append(asked(text, impossible=True))
        else:
            made.append(asked(text, (answer, 2 * first)))
    return made


def published(model: Any, where: Path, kind: str) -> Any:
    """The same weights in the class of transformers."""
    save(model, where, TOKENIZER)
    made = getattr(transformers, kind).from_pretrained(where, dtype=next(model.parameters()).dtype)
    return made.eval().requires_grad_(False)


def predicted(made: AnswerObjective, model: Any) -> list[Prediction]:
    with torch.no_grad():
        return made.merge(made.predict(model, batch_of(made)))
