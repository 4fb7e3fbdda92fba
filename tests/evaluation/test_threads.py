"""One model, asked from several threads."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from regard.api import load
from regard.evaluation.embeddings import Embedder
from regard.formats.directory import save
from regard.tasks.text_forms import ids_of
from tests.tasks.judging import ID, MARKS, TOKENIZER, model_of


def test_a_layer_is_heard_in_its_own_thread_alone(tmp_path: Path) -> None:
    save(model_of("bert", {"classify": 2}), tmp_path, TOKENIZER)
    reader = Embedder(load(tmp_path), 1, 0)
    tokens = torch.tensor([[ID["a"], ID["b"]]])
    with reader.heard() as states:
        other = threading.Thread(target=lambda: reader.read(tokens, None, {}))
        other.start()
        other.join()
        assert states == []
        reader.read(tokens, None, {})
    assert [tuple(each.shape) for each in states] == [(1, 2, 32)]


def test_special_tokens_that_are_spelled_out_are_text_for_who_asks_alone() -> None:
    glued, marked = f"a{MARKS['sep']}", [ID["a"], ID["<sep>"]]
    assert TOKENIZER.ready.encode(glued, add_special_tokens=False).ids == marked
    assert ids_of(TOKENIZER, [glued]) == [[ID["<unk>"]]]
    assert TOKENIZER.ready.encode(glued, add_special_tokens=False).ids == marked
