"""Decoding: strategies over logits, outside the models.

    generate(loaded, prompts, max_new_tokens=50, top_p=0.9)  # a list of results for each prompt
    for piece in stream(loaded, prompt): print(piece, end="")
    fill(loaded, "The [MASK] sat on the mat.", top_k=5)

A DecodeState (decode_state.py) returns the logits of the next token and holds the model's memory;
processors.py changes logits; sampling.py and beam.py choose tokens; pieces.py turns them into text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.decoding.filling import FilledText, fill
    from regard.decoding.generation import Generation, generate, stream
    from regard.decoding.options import DecodingOptions

__all__ = ["DecodingOptions", "FilledText", "Generation", "fill", "generate", "stream"]

HOMES = {
    "FilledText": "filling",
    "Generation": "generation",
    "DecodingOptions": "options",
    "fill": "filling",
    "generate": "generation",
    "stream": "generation",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'regard.decoding' has no attribute {name!r}")
    return getattr(import_module(f"regard.decoding.{HOMES[name]}"), name)
