"""What a new model takes from its data."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.data.corpus import Special


def fitted(config: Any, special: Special, vocabulary: int, length: int) -> dict[str, Any]:
    """What a new model takes from its data: vocabulary, special ids, positions."""
    fields = config.__dataclass_fields__
    pad = special.end if special.pad is None else special.pad
    values: dict[str, Any] = {"vocabulary": vocabulary, "context": length}
    values |= {"padding": pad, "start": pad, "end": special.end}
    found = {key: value for key, value in values.items() if key in fields}
    if "cutoffs" in fields:
        found["cutoffs"] = tuple(c for c in config.cutoffs if c < vocabulary)
    return found


def check_vocabulary(model: Any, vocabulary: int) -> None:
    """Refuses a model that knows another number of tokens than its data."""
    known = model.config.vocabulary
    if known < vocabulary:
        raise ConfigError(
            f"the data has {vocabulary:,} different tokens, the model knows {known:,}; prepare the "
            "text with the model's own tokenizer ('regard prepare … --tokenizer MODEL')"
        )
