"""The fields that the bodies of several routes share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

ModelField: Any = Field(description="The name of a served model; GET /v1/models lists them.")
Count = Annotated[int, Field(ge=1)]
OURS = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
DECODING = (
    "max_tokens", "min_tokens", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "no_repeat_ngram_size", "num_beams", "length_penalty", "seed", "stop",
)  # fmt: skip


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DecodingFields(Body):
    """How a text is written. What is left out has the default of the Python call."""

    max_tokens: Annotated[Count | None, Field(description="The most new tokens.")] = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Count | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    no_repeat_ngram_size: Count | None = None
    num_beams: Annotated[int, Field(ge=1, le=64)] | None = None
    length_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    seed: Annotated[
        int | None,
        Field(ge=-(2**63), lt=2**63, description="A negative one is that of Python plus 2^64."),
    ] = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None

    def decoding(self) -> dict[str, Any]:
        """Returns the options of decoding that the request sets, by the names of Python."""
        table = {name: getattr(self, name) for name in DECODING}
        if self.seed is not None:  # as 64 bits without a sign: Python takes no negative one
            table["seed"] = self.seed % 2**64
        return {OURS.get(name, name): v for name, v in table.items() if v not in (None, [])}
