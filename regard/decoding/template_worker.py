"""The program that renders chat templates; `templates.py` starts it and talks to it.

It imports nothing but the standard library and jinja2, so that it starts fast. It reads one request
a line from standard input and writes one answer a line to standard output, both JSON, and it ends
with its input. Its memory is limited where the system knows RLIMIT_AS. A request that takes too
long ends the program: the parent kills it, and where there is SIGALRM it also ends by itself.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

MEMORY = 2**29  # the most bytes of address space
SECONDS = 5  # of one request
LONGEST = 2**22  # characters of a rendered text
READY = "ready"


def limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, AttributeError, ValueError, OSError):
        pass  # not known here: only the time is limited


def limit_time(seconds: int) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends the program


def environment() -> Any:
    """Returns the sandbox, with what the templates of transformers may use."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: object) -> None:
        raise TemplateError(str(message))

    def as_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
        sort_keys: bool = False,
    ) -> str:  # fmt: skip
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)  # fmt: skip

    space = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    space.filters["tojson"] = as_json
    space.globals["raise_exception"] = refuse
    return space


def answered(space: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the text of a template, or why there is none."""
    try:
        text = space.from_string(request["template"]).render(
            messages=request["messages"], tools=None, documents=None, add_generation_prompt=True,
            **request["names"],
        )  # fmt: skip
        if len(text) > LONGEST:
            return {"error": f"it writes {len(text):,} characters; the most is {LONGEST:,}"}
        return {"text": text}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY >> 20} MiB of memory"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500], "line": line_of(error)}


def line_of(error: BaseException) -> int | None:
    """Returns the line of the template at which it failed."""
    line: int | None = getattr(error, "lineno", None)
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<template>":
            line = step.tb_lineno
        step = step.tb_next
    return line


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    sys.path[:] = json.loads(sys.argv[1])  # where the parent finds jinja2
    limit_memory()
    space = environment()
    print(READY, flush=True)
    for line in sys.stdin.buffer:
        limit_time(SECONDS + 1)
        answer = json.dumps(answered(space, json.loads(line)))
        limit_time(0)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
