"""How each kind of model reads a text that `regard look` shows: its inputs, and the labels of its
rows.

A causal model reads the text alone, or with what its task puts around it; an encoder reads the text
between its special tokens; an encoder-decoder reads two texts; Transformer-XL and XLNet may read
another text before it, as memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import permutation
from regard.data.input_formats import framed
from regard.decoding.filling import filler_for
from regard.decoding.prompts import Prompts, readable
from regard.formats.directory import Checkpoint
from regard.lab.look.tokens import LookToken, tokens_of
from regard.models.state import State
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.labeled import task_facts

LONGEST = 8192  # tokens
CELLS = 2**27  # weights of one layer's heads; more would not fit into the usual memory
WIDEST = 64  # characters of a token; a text with more for each is not even encoded
SAID = 40  # positions of a prediction order that a note names
NEW = 64  # tokens that a decoder writes if no target is given

Note = dict[str, Any]  # the key of a sentence in `words`, and the numbers in it


@dataclass(frozen=True)
class LookOptions:
    """The options of a recording besides the text."""

    target: str | Sequence[int] | None = None
    order: int | Sequence[int] | None = None
    memory: str | Sequence[int] | None = None
    knowledge: bool = False
    global_tokens: Sequence[int] | None = None  # counted from 1
    pair: str | None = None  # the second text of an encoder that reads two at once


@dataclass(frozen=True)
class StackPart:
    """Rows start … end of a stack of layers, and the names of its rows and columns."""

    kind: str  # self, encoder, decoder, cross, content, query
    rows: str
    columns: str
    start: int = 0
    end: int | None = None


@dataclass
class AttentionReading:
    """A text as a model reads it. `run` runs the model and returns its hidden states, whose rows
    are called `names[output]`; `parts` are the stacks that attend. A recurrent model reads a copy
    of `memory` before the text."""

    run: Callable[[], torch.Tensor]
    names: dict[str, list[LookToken]]
    parts: dict[str, list[StackPart]]  # by the kind of attention: self, encoder, decoder, cross
    past: int = 0
    notes: list[Note] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)  # of a knowledge graph
    output: str = "text"
    memory: State | None = None
    blanks: list[int] = field(default_factory=list)  # the rows of blanks


def note(key: str, **values: Any) -> Note:
    return {"key": key, **values}


def read(loaded: Checkpoint, text: str | Sequence[int], options: LookOptions) -> AttentionReading:
    """Builds the reading for this model. Raises InputError for an option that the model cannot use,
    so that no option is silently ignored."""
    model = loaded.model
    name = model.family.name
    for value, able, option, needs in (
        (options.target, model.kind == "encoder-decoder", "a target", "an encoder with a decoder"),
        (options.order, "targets" in model.accepts, "an order", "XLNet"),
        (options.memory, model.remembers == "rows", "a memory", "Transformer-XL or XLNet"),
        (options.global_tokens, "global_tokens" in model.accepts, "global tokens", "Longformer"),
        (options.pair, reads_pairs(loaded), "a second text", "models that read pairs of texts"),
    ):
        if value is not None and not able:
            raise InputError(f"{option} is for {needs}, but this model is a {name}; leave it out")
    if isinstance(text, str) and not text.strip():
        raise InputError("there is no text to look at; give one with at least one word")
    if model.kind == "encoder-decoder":
        if options.knowledge:
            raise InputError(
                f"knowledge is for encoders trained with it, not for {name}; leave it out"
            )
        return of_pair(loaded, text, options)
    text, blanks = blanks_of(loaded, text)
    if blanks and options.order is None and "targets" in model.accepts:
        options = replace(options, order=[place + 1 for place in blanks])
    reading = (of_recurrent if model.remembers == "rows" else of_text)(loaded, text, options)
    reading.blanks = blanks
    return reading


# -- ids


def blanks_of(
    loaded: Checkpoint, text: str | Sequence[int]
) -> tuple[str | Sequence[int], list[int]]:
    """Returns a text with blanks ([MASK] or ___) as ids, and the rows of its blanks. Only models
    that fill blanks read them."""
    model, special = loaded.model, Prompts(loaded).special
    fills = model.fills in ("masked", "queries") and hasattr(model, "output")
    if not fills or special is None or special.mask is None:
        return text, []
    if isinstance(text, str):
        filler: Any = filler_for(loaded, 1, "each", 1)
        if not filler.blank.search(text):
            return text, []
        text = filler.encode(text)
    return text, [i for i, token in enumerate(text) if token == special.mask]


def longest(loaded: Checkpoint) -> int:
    """Returns how many tokens a page shows: all heads of a layer are in memory at once. Windows
    need little."""
    if "global_tokens" in loaded.model.accepts:
        return LONGEST
    return min(LONGEST, math.isqrt(CELLS // getattr(loaded.config, "heads", 1)))


def check_lengths(loaded: Checkpoint, texts: Sequence[str | Sequence[int] | None]) -> None:
    """Refuses texts that are too long before anything is computed."""
    for text in texts:
        if text is not None:
            encoded(loaded, text, special=False)


def encoded(loaded: Checkpoint, text: str | Sequence[int], *, special: bool) -> list[int]:
    most = longest(loaded)
    if len(text) > WIDEST * most:
        raise InputError(
            f"the text has {len(text):,} characters; a page shows up to {most:,} tokens of this "
            "model, so shorten it"
        )
    if not isinstance(text, str):
        ids = [int(i) for i in text]
        Prompts(loaded).check_known("the text", ids)
    else:
        ids = Prompts(loaded).words().encode(readable(text), special=special)
    if not ids:
        raise InputError("there is no text to look at; give one with at least one word")
    if len(ids) > most:
        raise InputError(
            f"the text has {len(ids):,} tokens; a page shows up to {most:,} of this model, so "
            "shorten it"
        )
    return ids


def reads_pairs(loaded: Checkpoint) -> bool:
    layout, special = loaded.model.family.input_format, Prompts(loaded).special
    return loaded.model.kind != "encoder-decoder" and layout is not None and special is not None


def row_of(
    loaded: Checkpoint, text: str | Sequence[int], pair: str | None = None
) -> tuple[list[int], list[int] | None]:
    """Returns the ids of a text, or of two, and their segments. Around the text stand the special
    tokens that the model was trained with (an encoder's, or those of a task), whether its tokenizer
    adds them or not."""
    model = loaded.model
    layout, special = model.family.input_format, Prompts(loaded).special
    if layout is not None and special is not None and isinstance(text, str):
        known = not model.causal and special.cls is not None and special.sep is not None
        if known or task_of(loaded) or pair is not None:
            ids = encoded(loaded, text, special=False)
            second = None if pair is None else encoded(loaded, pair, special=False)
            frame = framed(layout, special, ids, second, len(ids) + len(second or ()) + 4)
            return frame.ids, frame.segments if layout.segments else None
    return encoded(loaded, text, special=not model.causal), None


def task_of(loaded: Checkpoint) -> dict[str, Any]:
    """Returns the content of task.json of a fine-tuned model; {} for any other model."""
    return {} if loaded.path is None else task_facts(loaded.path)


def first_is_global(loaded: Checkpoint) -> bool:
    """Returns whether the first token of a Longformer is global, as it was when it learned its
    task."""
    name = task_of(loaded).get("task")
    if name not in TASKS or not find(name).has_objective:
        return True
    return find(name).objective().first_is_global


# -- one text


def of_text(
    loaded: Checkpoint, text: str | Sequence[int], options: LookOptions
) -> AttentionReading:
    ids, segments = row_of(loaded, text, options.pair)
    inputs: dict[str, Any] = {}
    names = tokens_of(loaded.tokenizer, ids)
    notes: list[Note] = []
    facts: list[str] = []
    if options.knowledge:
        ids, segments, names, inputs, notes, facts = informed(loaded, ids, segments)
    if segments is not None and hasattr(loaded.config, "segments") and loaded.config.segments > 1:
        inputs["segments"] = torch.tensor([segments])
    if "global_tokens" in loaded.model.accepts:
        usual = (1,) if first_is_global(loaded) else ()
        chosen = usual if options.global_tokens is None else options.global_tokens
        places = [place - 1 for place in chosen]
        if not all(0 <= place < len(ids) for place in places):
            raise InputError(
                f"the global tokens are {list(chosen)}; they must be from 1 to {len(ids)}"
            )
        inputs["global_tokens"] = torch.zeros(1, len(ids), dtype=torch.bool)
        inputs["global_tokens"][0, places] = True
        names = [t.marked("global") if i in places else t for i, t in enumerate(names)]
        windows = sorted(set(loaded.config.windows))
        notes.append(note("window", window="/".join(map(str, windows)), count=len(set(places))))
    table = torch.tensor([ids])
    part = StackPart("self", "text", "text")
    run = lambda: loaded.model(table, **inputs)  # noqa: E731
    return AttentionReading(run, {"text": names}, {"self": [part]}, 0, notes, facts)


def of_recurrent(
    loaded: Checkpoint, text: str | Sequence[int], options: LookOptions
) -> AttentionReading:
    """Reads with Transformer-XL or XLNet: a memory before the text, and XLNet's prediction
    order."""
    model = loaded.model
    ids, segments = row_of(loaded, text, options.pair)
    names = tokens_of(loaded.tokenizer, ids)
    inputs: dict[str, Any] = {}
    notes: list[Note] = []
    facts: list[str] = []
    if options.knowledge:
        ids, segments, names, inputs, notes, facts = informed(loaded, ids, segments)
    if segments is not None:
        inputs["segments"] = torch.tensor([segments])
    before: list[int] = []
    memory = None
    if options.memory is not None:
        before = encoded(loaded, options.memory, special=False)
        memory = remembered(model, before)
        remembered_rows = memory.hidden[0].size(1)
        notes.append(note("memory", count=remembered_rows, given=len(before)))
        before = before[-remembered_rows:]
    parts = [StackPart("self", "text", "keys")]
    tables = {"text": names}
    if options.order is not None:
        rank = ranks(options.order, len(ids))
        targets = [i for i, r in enumerate(rank) if r >= 0]
        inputs |= {"order": torch.tensor([rank]), "targets": torch.tensor([targets])}
        names = [t if r < 0 else replace(t, rank=r + 1) for t, r in zip(names, rank, strict=True)]
        tables = {"text": names, "asked": [replace(names[i], place=i + 1) for i in targets]}
        rows = len(ids)
        parts = [
            StackPart("content", "text", "keys", 0, rows),
            StackPart("query", "asked", "keys", rows, rows + len(targets)),
        ]
        order = sorted(targets, key=lambda i: rank[i])
        shown = [str(i + 1) for i in order[:SAID]] + ["…"] * (len(order) > SAID)
        notes.append(note("order", order=" → ".join(shown)))
    past = [
        replace(t.marked("memory"), place=i - len(before))
        for i, t in enumerate(tokens_of(loaded.tokenizer, before))
    ]
    tables["keys"] = past + [replace(t, place=i) for i, t in enumerate(names, 1)]
    table = torch.tensor([ids])

    def run() -> torch.Tensor:
        before_text = reading.memory  # a copy is read: the model adds the rows of the text to it
        with model.one_direction():
            state = {} if before_text is None else {"state": copied(before_text)}
            hidden: torch.Tensor = model(table, **inputs, **state)
            return hidden

    reading = AttentionReading(
        run, tables, {"self": parts}, len(past), notes, facts, parts[-1].rows, memory
    )
    return reading


def copied(memory: State) -> State:
    return State(hidden=list(memory.hidden), length=memory.length)


def remembered(model: Any, before: list[int]) -> State:
    """Reads a text into a memory, in segments of which every row is kept (an XLNet may keep only
    the first `reuse_len` rows of a segment)."""
    step = min(len(before), model.limits.mem_len, model.limits.reuse_len)
    if step == 0:
        raise InputError("this model keeps no rows (its memory is 0); leave the memory out")
    state = State()
    with torch.no_grad(), model.one_direction():
        for start in range(0, len(before), step):
            model(torch.tensor([before[start : start + step]]), state=state)
    if not state.hidden or state.hidden[0].size(1) == 0:
        raise InputError("the model keeps no row of the memory's text; leave the memory out")
    return copied(state)


def ranks(order: int | Sequence[int], length: int) -> list[int]:
    """Returns the position of each token in the prediction order, -1 for tokens that all rows may
    see.

    A number is the seed of an order of all tokens. A list names tokens, counted from 1, in the
    order in which they are predicted; the other tokens are given.
    """
    if isinstance(order, int):
        chosen = permutation(length, order, "order of guessing").tolist()
    else:
        chosen = [place - 1 for place in order]
    if len(set(chosen)) < len(chosen) or not all(0 <= place < length for place in chosen):
        raise InputError(
            f"the order is {order}; it must name tokens from 1 to {length}, each at most once"
        )
    if not chosen:
        raise InputError("the order is empty; name the tokens to guess, as in 3,1,2")
    ranks_of_tokens = [-1] * length
    for rank, place in enumerate(chosen):
        ranks_of_tokens[place] = rank
    return ranks_of_tokens


# -- two texts


def of_pair(
    loaded: Checkpoint, text: str | Sequence[int], options: LookOptions
) -> AttentionReading:
    """Reads with an encoder-decoder. The decoder's rows are its inputs: the start token and then
    the target; each row predicts the next token."""
    model, prompts = loaded.model, Prompts(loaded)
    prompt = readable(text) if isinstance(text, str) else encoded(loaded, text, special=False)
    source = prompts.encode(prompt)
    notes = []
    if options.target is None:
        from regard.decoding.generation import generate

        written = generate(loaded, prompt, max_new_tokens=NEW)[0][0].ids
        target = written[:-1] if written[-1:] == [model.config.eos_id] else written
        notes.append(note("written", count=len(target)))
    else:
        target = encoded(loaded, options.target, special=False)
    first = tokens_of(loaded.tokenizer, [model.config.start_id])[0]
    start = LookToken(first.text, marks=("start",))
    names = {
        "source": tokens_of(loaded.tokenizer, source),
        "target": [start, *tokens_of(loaded.tokenizer, target)],
    }
    parts = {
        "encoder": [StackPart("encoder", "source", "source")],
        "decoder": [StackPart("decoder", "target", "target")],
        "cross": [StackPart("cross", "target", "source")],
    }
    rows = torch.tensor([source]), torch.tensor([[model.config.start_id, *target]])
    return AttentionReading(lambda: model(*rows), names, parts, 0, notes, output="target")


# -- knowledge


def informed(
    loaded: Checkpoint, ids: list[int], segments: list[int] | None
) -> tuple[list[int], list[int] | None, list[LookToken], dict[str, Any], list[Note], list[str]]:
    """Returns the row with the facts that the run's own knowledge graph adds, read as in its
    training."""
    from regard.data.knowledge.options import KnowledgeOptions
    from regard.tasks.knowledge import KnowledgeInputs, check_use

    task = task_of(loaded)
    table = (task.get("objective") or {}).get("knowledge")
    special = Prompts(loaded).special
    if not table or special is None:
        raise ConfigError(
            "this run was trained without knowledge; train with it first: regard finetune … "
            "--knowledge FILE"
        )
    family = loaded.model.family.name
    check_use(family, task["task"])
    corpus = SimpleNamespace(path=loaded.path, tokenizer=loaded.tokenizer, special=special)
    teller = KnowledgeInputs(
        SimpleNamespace(corpus=corpus, frame=loaded.model.family.input_format),
        KnowledgeOptions.of(dict(table)),
    )
    sides = np.zeros(len(ids), np.int64) if segments is None else np.array(segments)
    room = max(int(task.get("length") or 0), len(ids))
    row = teller.row(np.array(ids), sides, np.zeros(len(ids), np.int64), room)
    batch: dict[str, Any] = {"tokens": torch.from_numpy(row.ids)[None], "attention_mask": None}
    batch |= {} if segments is None else {"segments": torch.from_numpy(row.segments)[None]}
    visible = teller.options.matrix or not teller.tree
    tables = teller.collate([{"facts": row.facts}] if visible else [], row.ids[None])
    names = tokens_of(loaded.tokenizer, row.ids.tolist())
    if teller.tree:
        hangs = row.facts["line"] > 0
        names = [t.marked("branch") if h else t for t, h in zip(names, hangs, strict=True)]
        facts = branches(loaded, row)
        notes = [note("branches", count=int(row.facts["line"].max()), left=row.left_out)]
    else:
        known = row.facts["entity"] > 0
        names = [t.marked("entity") if h else t for t, h in zip(names, known, strict=True)]
        facts = []
        notes = [note("entities", count=len(set(row.facts["entity"].tolist()) - {0}))]
    inputs = teller.given(batch | tables)
    own = None if segments is None else row.segments.tolist()
    return row.ids.tolist(), own, names, dict(inputs), notes, facts


def branches(loaded: Checkpoint, row: Any) -> list[str]:
    """Returns each branch as text, with the word that it belongs to."""
    facts, sentences = row.facts, []
    tokenizer: Any = loaded.tokenizer
    for line in range(1, int(facts["line"].max()) + 1):
        hangs = facts["line"] == line
        trunk = facts["word"] == facts["owner"][hangs][0]
        owner, branch = (tokenizer.decode(row.ids[mask].tolist()) for mask in (trunk, hangs))
        sentences.append(f"{owner.strip()} — {branch.strip()}")
    return sentences
