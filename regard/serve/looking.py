"""Looking into a model: /attention, and what its weights cannot answer: /lens /ablate /patch
/attribute. Each answers {"model": …, "results": [one]} with the facts of the Python method.

These run a model many times, in one turn, so their work is bounded, and not only their texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import torch
from fastapi import APIRouter, Request
from pydantic import Field

from regard.api import LoadedModel
from regard.core.errors import RequestError
from regard.lab.deeper.question import check_attends
from regard.lab.look.page import side_data
from regard.lab.look.recorded import look
from regard.models.output import answering_head
from regard.serve.asking import ask, check_input, in_thread, state_of
from regard.serve.encoders import lengths
from regard.serve.models import ServedModel
from regard.serve.ours import Answer, ModelName, example, results
from regard.serve.schemas import Body
from regard.serve.task_reading import TaskReading, as_read, written

router = APIRouter(tags=["Looking"])
LONGEST = 256  # the most tokens of a text
WORK = 4 * 10**11  # the most runs · tokens · parameters: seconds, not minutes
WRITTEN = 64  # tokens that a decoder may write if no target is given
Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=LONGEST)]
Place = Annotated[str, Field(max_length=40)]
Places = Annotated[list[Place], Field(max_length=1024)]


class LookBody(Body):
    """What a model reads: a text, or its tokens by their ids."""

    model: ModelName = None
    text: str | Ids
    target: Annotated[str | Ids | None, Field(description="The text of a decoder.")] = None
    memory: Annotated[str | None, Field(description="A text that is read before.")] = None
    pair: Annotated[str | None, Field(description="The second text of a pair.")] = None
    verb: Annotated[
        Literal["classify", "tag", "answer", "choose", "fill"] | None,
        Field(description="What the text is read for: all that the model then reads around it."),
    ] = None
    choices: Annotated[list[str], Field(max_length=64, description="Of choose.")] = []
    choice: Annotated[int, Field(ge=0, description="The choice to read, from 0.")] = 0
    asks: Annotated[str | None, Field(description="The question of choose.")] = None
    fills: Annotated[
        list[Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=64)]],
        Field(max_length=64, description="The tokens that were written into each blank."),
    ] = []

    def as_read(self, loaded: LoadedModel) -> Self:
        """Returns what the model reads for the task."""
        if self.verb is None:
            return self
        how = TaskReading(self.verb, self.pair, self.choices, self.choice, self.asks, self.fills)
        text, target, pair = as_read(loaded, self.text, how)
        return self.model_copy(update={"text": text, "target": self.target or target, "pair": pair})

    def answered(self, loaded: LoadedModel) -> Self:
        """Returns it with the answer that the model writes, if nobody says which; by the model's
        own thread, for it runs the model."""
        if self.verb is None or self.target is not None:
            return self
        return self.model_copy(update={"target": written(loaded, self.verb, self.text)})

    def texts(self) -> list[str | list[int]]:
        every = (self.text, self.target, self.memory, self.pair)
        return [text for text in every if text is not None]

    def read(self) -> dict[str, Any]:
        """Returns the options that say what is read besides the text."""
        return {"target": self.target, "memory": self.memory, "pair": self.pair}


class AttentionBody(LookBody):
    model_config = example(text="The cat sat on the mat.")
    form: Annotated[
        Literal["averages", "side", "page"],
        Field(description="The mean of each layer's heads; all weights as the page of `regard look`"
              " reads them; or this page as HTML."),
    ] = "averages"  # fmt: skip


class LensBody(LookBody):
    model_config = example(text="The cat sat on the")
    top_k: Annotated[int, Field(ge=1, le=20)] = 5


class RowBody(LookBody):
    """What is asked of a text: the answer at a position, and a token or label of it."""

    position: Annotated[int | None, Field(description="Of the answer, counted from 1.")] = None
    token: Annotated[
        str | int | None, Field(description="The token or label to follow; the likeliest.")
    ] = None

    def row(self) -> dict[str, Any]:
        return {"token": self.token, "position": self.position, **self.read()}


class AblateBody(RowBody):
    model_config = example(text="The cat sat on the", heads=["1.2"])
    heads: Annotated[
        Literal["all"] | Places,
        Field(description="Heads such as 3.2 or cross.3.2, or 'all': each of them alone."),
    ] = []
    layers: Annotated[Places, Field(description="Layers such as 3 or encoder.3.")] = []
    method: Literal["zero", "mean"] = "zero"


class PatchBody(RowBody):
    model_config = example(text="The cat sat on the", corrupted="The dog sat on the")
    corrupted: Annotated[str | Ids, Field(description="The text whose run is patched.")]
    of: Literal["residual", "heads"] = "residual"
    alignment: Annotated[
        list[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]] | None,
        Field(
            min_length=1, max_length=LONGEST,
            description="Positions of both texts that belong together, [clean, corrupted], if the "
            "texts have different numbers of tokens.",
        ),
    ] = None  # fmt: skip

    def as_read(self, loaded: LoadedModel) -> Self:
        other = self.model_copy(update={"text": self.corrupted})
        if isinstance(self.corrupted, list):  # the ids say all
            return super().as_read(loaded)
        return (
            super()
            .as_read(loaded)
            .model_copy(update={"corrupted": LookBody.as_read(other, loaded).text})
        )

    def texts(self) -> list[str | list[int]]:
        return [*super().texts(), self.corrupted]


class AttributeBody(RowBody):
    model_config = example(text="The cat sat on the")
    measure: Literal["logit", "probability"] = "logit"
    baseline: Annotated[str | None, Field(description="A token instead of zeros.")] = None
    steps: Annotated[int, Field(ge=1, le=256)] = 64


# -- routes


@router.post("/attention", summary="Who looks at whom: the attention of every layer")
async def attention(request: Request, body: AttentionBody) -> Answer:
    served = state_of(request).models.find(body.model)

    def call(loaded: LoadedModel, body: AttentionBody) -> Any:
        recorded = look(loaded, body.text, **body.read())
        (side,) = recorded.sides
        side.model = served.name
        if body.form == "page":
            return {"page": recorded.html()}
        return side_data(side) if body.form == "side" else recorded.facts()["sides"][0]

    return await looked(request, body, "attention", call, lambda served, tokens: 2)


@router.post("/lens", summary="What each layer would answer")
async def lens(request: Request, body: LensBody) -> Answer:
    def call(loaded: LoadedModel, body: LensBody) -> Any:
        return loaded.lens(body.text, top_k=body.top_k, **body.read()).facts()

    return await looked(request, body, "lens", call, lambda served, tokens: served.facts.layers + 2)


@router.post("/ablate", summary="What changes in the answer without heads or layers")
async def ablate(request: Request, body: AblateBody) -> Answer:
    def call(loaded: LoadedModel, body: AblateBody) -> Any:
        chosen = {"heads": body.heads, "layers": body.layers, "method": body.method}
        return loaded.ablate(body.text, **chosen, **body.row()).facts()

    def runs(served: ServedModel, tokens: int) -> int:
        return served.facts.all_heads + 1 if body.heads == "all" else 2

    return await looked(request, body, "ablate", call, runs)


@router.post("/patch", summary="Where a model holds what makes two texts differ")
async def patch(request: Request, body: PatchBody) -> Answer:
    def call(loaded: LoadedModel, body: PatchBody) -> Any:
        chosen = {"of": body.of, "alignment": body.alignment}
        return loaded.patch(body.text, body.corrupted, **chosen, **body.row()).facts()

    def runs(served: ServedModel, tokens: int) -> int:
        facts = served.facts
        return 2 + (facts.all_heads if body.of == "heads" else (facts.layers + 1) * tokens)

    return await looked(request, body, "patch", call, runs)


@router.post("/attribute", summary="Which tokens an answer depends on")
async def attribute(request: Request, body: AttributeBody) -> Answer:
    def call(loaded: LoadedModel, body: AttributeBody) -> Any:
        options = {"measure": body.measure, "baseline": body.baseline, "steps": body.steps}
        with torch.inference_mode(False):  # gradients are needed
            return loaded.attribute(body.text, **options, **body.row()).facts()

    return await looked(request, body, "attribute", call, lambda served, tokens: 3 * body.steps + 3)


# -- what they share


async def looked(
    request: Request,
    body: LookBody,
    verb: str,
    call: Callable[[LoadedModel, Any], Any],
    runs: Callable[[ServedModel, int], int],
) -> Answer:
    """Answers with what `call` returns; `runs` is how often it runs the model."""
    served = state_of(request).models.find(body.model)
    if body.verb is not None:
        served.check(body.verb)
    async with served.use() as loaded:
        check_looks(loaded, verb, served)
        whole = await in_thread(body.as_read, loaded)
        tokens = await in_thread(checked, served, loaded, whole.texts())
        if whole.target is None and loaded.model.kind == "encoder-decoder":
            tokens += WRITTEN
        work = runs(served, tokens) * tokens * served.facts.parameters
        if work > WORK:
            raise RequestError(
                f"{verb} would run {served.name} {runs(served, tokens):,} times on {tokens:,} "
                f"tokens, which is more than this server allows; shorten the text, or ask for less"
            )
        answers = await ask(
            request, served, lambda _: [call(loaded, whole.answered(loaded))], [body], object()
        )
    return results(served, answers)


def check_looks(loaded: LoadedModel, verb: str, served: ServedModel) -> None:
    """Refuses what a model cannot do, with the reason where there is a better one than a list."""
    if verb in served.facts.verbs:
        return
    if verb != "attribute":
        check_attends(loaded, verb)
    if verb != "attention":
        answering_head(loaded.model)
    served.check(verb)


def checked(served: ServedModel, loaded: LoadedModel, texts: list[str | list[int]]) -> int:
    """Returns the number of tokens of all texts; refuses texts that are blank or too long."""
    words = [(text, None) for text in texts if isinstance(text, str)]
    limit = min(LONGEST, served.facts.context or LONGEST)
    counts = lengths(served, loaded, words, limit, False)
    for ids in texts:
        if not isinstance(ids, str):
            check_input(served, ids, limit, "text")
            counts.append(len(ids))
    return sum(counts)
