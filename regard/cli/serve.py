"""The command `regard serve`, which puts models behind HTTP."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

from regard.cli.guess import check_there
from regard.cli.options import Command
from regard.cli.output import say
from regard.core.errors import ConfigError
from regard.core.options import Argument, PartialOptions
from regard.core.tables import Table
from regard.serve.options import KEY_VARIABLE, ServeOptions, precision_of


def serve(
    models: Annotated[
        Sequence[str],
        Argument(
            "MODEL…",
            "Runs or model directories; NAME=DIR gives one a name, and "
            "DIR:int8 a precision of its own.",
        ),
    ],
    *,
    options: Annotated[Table, PartialOptions(ServeOptions)],
) -> None:
    """Serve models over HTTP: for clients of OpenAI, for curl, and for a browser.

    Texts that a model writes share its steps (continuous batching), and texts that it reads are
    gathered into batches. Every answer is that of the Python call. GET /docs describes the routes:
    those of OpenAI (/v1/completions, /v1/chat/completions, /v1/embeddings), those of
    text-embeddings-inference (/embed, /predict, /rerank, /similarity), and our own (/classify,
    /tag, /answer, /choose, /link, /translate, /summarize, /fill, /attention). Ctrl-C or SIGTERM
    finishes what was accepted and ends.

    \b
    Examples:
      regard serve ./my-gpt
      regard serve ./my-gpt ./reviewer small=./reviewer-3 --port 8080
      regard serve ./my-gpt --precision int8 --rows 16 --keep 600
      regard serve ./my-gpt small=./my-gpt:int8
      REGARD_API_KEY=secret regard serve ./my-gpt --host 0.0.0.0
      curl http://127.0.0.1:8000/v1/completions -H 'content-type: application/json'
        -d '{"model": "my-gpt", "prompt": "Once upon a time", "max_tokens": 20}'
    """
    key = os.environ.get(KEY_VARIABLE)
    table: Table = ({"api_key": key} if key else {}) | options
    chosen = ServeOptions(**table)
    places = [precision_of(path.rpartition("=")[2])[0] for path in models if "hub:" not in path]
    check_there("MODEL", *places)
    try:
        from regard.serve.server import serve as run
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"regard serve needs {error.name}; install it: pip install 'regard[serve]'"
        ) from None
    run(models, chosen, say)


COMMANDS = {"serve": Command(serve, json=False)}
