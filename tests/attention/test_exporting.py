"""While a graph is recorded, patterns and distances have no loops: they give the same."""

from __future__ import annotations

import pytest
import torch

from tests.laws.zoo import ZOO, Specimen, collate

PAST = {"xlnet-asking"}  # its query rows are no part of an exported graph


@pytest.mark.parametrize("specimen", [one for one in ZOO if one.name not in PAST], ids=str)
@pytest.mark.parametrize("left", [False, True])
def test_the_paths_of_a_graph_give_the_same(
    specimen: Specimen, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = specimen.fresh()
    batch = collate([specimen.text(length, length) for length in (5, 9, 12)], left=left)
    with torch.no_grad():
        expected = batch.of(model(**batch.inputs))
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
        again = batch.of(model(**batch.inputs))
    for ours, graph in zip(expected, again, strict=True):
        torch.testing.assert_close(graph, ours, atol=2e-5, rtol=1e-4)


def test_a_row_without_keys_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded row on the left sees nothing; in a graph it must not become NaN."""
    from regard.attention.pattern import additive

    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    mask = additive(torch.zeros(1, 3, dtype=torch.bool), torch.float32)
    assert torch.isfinite(mask).all() and torch.isfinite(mask.softmax(-1)).all()
    seen = additive(torch.tensor([[True, False]]), torch.float32) + torch.tensor([[-500.0, 500.0]])
    assert seen.softmax(-1).tolist() == [[1.0, 0.0]]
