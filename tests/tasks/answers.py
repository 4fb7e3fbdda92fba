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
from regard.data.tokenizer_classes import bert_pieces
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
TOKENIZER = declared(bert_pieces(PIECES), ROLES)


def question_of(
    passage: str, *answers: tuple[str, int], impossible: bool = False, question: str = "q r"
) -> Question:
    spans = tuple(Gold(*answer) for answer in answers)
    return Question(question, passage, spans, impossible, FileLine("squad.json", 7), "one")


def objective(
    family: str, examples: Sequence[Question], length: int = 9, split: str = "train", **options: Any
) -> AnswerObjective:
    corpus = TaskCorpus("answer", examples, TOKENIZER, split=split)
    settings = AnswerOptions(family=family, **({"stride": 2} | options))
    learning = split == "train"
    return AnswerObjective(
        corpus, settings, seq_len=length, batch_size=4, seed=1, learning=learning
    )  # type: ignore[arg-type]


def batch_of(objective: AnswerObjective) -> dict[str, Tensor]:
    return objective.collate([objective.sample(0, i) for i in range(len(objective))])


def model_of(family: str, dtype: torch.dtype = torch.float32, **heads: int) -> Any:
    torch.manual_seed(3)
    options = SIZE | STILL | {"context": 40, "head_size": 16, "window": 8}
    own = {} if family == "xlnet" else {"pad_id": PAD}
    usual = {"span": 0} if family == "xlnet" else {"answer": 2}
    model = tiny(family, heads or usual, **options, **own)
    model.initialize()
    for parameter in model.parameters():  # so that scores differ well
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model.to(dtype).eval().requires_grad_(False)


def words(ids: Tensor) -> str:
    return " ".join(TOKENIZER.tokens(ids.tolist()))


SIX = question_of("a b c d e f", ("e f", 8))


def long_ones(count: int, impossible: bool = False) -> list[Question]:
    """Passages of different lengths, answers of one to three words."""
    questions = []
    for number in range(count):
        dice = keyed("answers", number)
        letters = dice.choice(list("abcdefg"), size=int(dice.integers(5, 16)))
        first = int(dice.integers(len(letters) - 3))
        text = " ".join(letters)
        answer = text[2 * first : 2 * (first + int(dice.integers(1, 4))) - 1]
        if impossible and number % 3 == 0:
            questions.append(question_of(text, impossible=True))
        else:
            questions.append(question_of(text, (answer, 2 * first)))
    return questions


def published(model: Any, where: Path, kind: str) -> Any:
    """The same weights in the class of transformers."""
    save(model, where, TOKENIZER)
    theirs = getattr(transformers, kind).from_pretrained(
        where, dtype=next(model.parameters()).dtype
    )
    return theirs.eval().requires_grad_(False)


def predicted(objective: AnswerObjective, model: Any) -> list[Prediction]:
    with torch.no_grad():
        return objective.merge(objective.predict(model, batch_of(objective)))
