"""What drafts gain: benchmarks/inference.py continues one text with and without each of them."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

from inference_sides import THREADS
from measure import interleaved, median

PERIOD, REPEATED = 16, 8  # the words of a prompt that repeats itself, and how often it has them
LAYERS = 2  # of the draft that is made of the first layers


def drafted(model: Path, pair: list[Path], repeats: int, tiny: bool) -> list[dict[str, Any]]:
    """Returns the tokens per second of one text with and without each draft. `pair`: a trained
    model and its draft, which are measured in the place of the random ones."""
    import torch

    from regard.api import load

    torch.set_num_threads(THREADS)
    new = 16 if tiny else 128
    large, small = pair or (model, first_layers(model, model.parent / "draft"))
    loaded = load(large)
    words = list(range(5, 5 + PERIOD))
    name = "a small model" if pair else "the first layers"
    return [
        {"draft": "lookup"} | compared(loaded, words * REPEATED, "lookup", new, repeats),
        {"draft": name} | compared(loaded, words, str(small), new, repeats),
    ]


def first_layers(model: Path, place: Path) -> Path:
    """Saves the first layers of a GPT as a model of their own, beside its words and its output."""
    from regard.api import load
    from regard.formats.directory import save

    whole: Any = load(model).model
    small = type(whole)(whole.config.replace(layers=LAYERS))
    names = small.state_dict()
    weights = copy.deepcopy({k: v for k, v in whole.state_dict().items() if k in names})
    small.load_state_dict(weights)
    return save(small, place)


def compared(
    loaded: Any, prompt: list[int], draft: str, new: int, repeats: int
) -> dict[str, float]:
    """Measures both ways in turn. Their tokens are equal; a draft saves calls of the model."""
    from regard.decoding import generate
    from regard.decoding.generation import Decoder
    from regard.decoding.generation_config import options_for

    options = {"max_new_tokens": new, "eos_ids": [], "suppress_tokens": []}
    write = partial(generate, loaded, prompt, **options)
    times = interleaved({"without": write, "with": partial(write, draft=draft)}, repeats, 1)
    decoder = Decoder(loaded, options_for(loaded, options | {"draft": draft}))
    with decoder.ready():
        loop: Any = decoder.loop([prompt], [0], *decoder.limits(prompt))
        tokens = sum(len(drawn) for drawn in loop.steps())
    figures = {side: new / median(values) for side, values in times.items()}
    return figures | {"tokens_a_call": (tokens - 1) / loop.rounds}
