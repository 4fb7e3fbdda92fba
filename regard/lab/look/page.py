"""The page of a recording: one file with its style, its program and its data; nothing is fetched.

The data are JSON in a script element that is never executed. What others wrote (texts, tokens,
names) only ever becomes text.
"""

from __future__ import annotations

import base64
import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.lab.look.words import WORDS
from regard.report.heatmap import clean

if TYPE_CHECKING:
    from regard.lab.look.recorded import Layer, Recorded, Side

PROGRAM = ("data.js", "surface.js", "picture.js", "readout.js", "side.js", "look.js")
SAFE = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{safe}">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<noscript><p>{no_script}</p><p lang="zh-Hans">{no_script_zh}</p></noscript>
<div id="page"></div>
<script type="application/json" id="data">{data}</script>
<script>
"use strict";
{program}
</script>
</body>
</html>
"""


def page(recorded: Recorded) -> str:
    here = files("regard.lab.look")
    program = "\n".join((here / name).read_text(encoding="utf-8") for name in PROGRAM)
    no_script, no_script_zh = WORDS["no_script"]
    names = " / ".join(dict.fromkeys(side.model for side in recorded.sides))
    return PAGE.format(
        safe=SAFE,
        title=escape(clean(f"{names} · regard look")),
        style=(here / "look.css").read_text(encoding="utf-8"),
        no_script=no_script,
        no_script_zh=no_script_zh,
        data=as_data({"words": WORDS, "sides": [side_data(side) for side in recorded.sides]}),
        program=program,
    )


def as_data(value: Any) -> str:
    """JSON that can stand in a page: no text in it can end its element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def side_data(side: Side) -> dict[str, Any]:
    return {
        "model": clean(side.model),
        "family": side.family,
        "text": clean(side.text.replace("\r", "").replace("\n", "⏎ ")),
        "tokens": {name: [t.table() for t in tokens] for name, tokens in side.tokens.items()},
        "notes": side.notes,
        "facts": [clean(fact) for fact in side.facts],
        "precision": {"kind": side.precision.kind, "count": side.precision.count},
        "stacks": [
            {
                "kind": stack.kind,
                "rows": stack.rows,
                "columns": stack.columns,
                "layers": [layer_data(layer) for layer in stack.layers],
            }
            for stack in side.stacks
        ],
    }


def layer_data(layer: Layer) -> dict[str, Any]:
    """Heads first, then their mean and the rollout; small pictures in the same order."""
    small = b"".join(np.ascontiguousarray(table).tobytes() for table, _ in layer.pictures)
    return {
        "heads": [head.table() for head in layer.heads],
        "mean": layer.mean.table(),
        "rolled": layer.rolled.table(),
        "size": list(layer.pictures[0][1]),
        "small": base64.b64encode(small).decode(),
    }
