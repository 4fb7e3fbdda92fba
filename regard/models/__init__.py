"""All models by name. FAMILIES and the SIZES of each model's file are the only registry.

Importing this package imports no torch; a family's file is imported when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from regard.core.errors import UnknownName

if TYPE_CHECKING:
    from regard.models.base import Config, Model


@dataclass(frozen=True)
class Family:
    """Where a model's file is, and which paper it comes from."""

    name: str
    module: str
    model: str
    config: str
    paper: str
    year: int
    later: tuple[
        tuple[str, str, int], ...
    ] = ()  # (first letters of a size's name, its paper, its year)

    def load(self) -> tuple[type[Model], type[Config], dict[str, Any]]:
        """The model class, its configuration class and its published sizes."""
        module = import_module(f"regard.models.{self.module}")
        return getattr(module, self.model), getattr(module, self.config), module.SIZES

    def source(self, size: str) -> tuple[str, int]:
        """The paper and the year of one size."""
        return next(
            ((p, y) for start, p, y in self.later if size.startswith(start)),
            (self.paper, self.year),
        )


FAMILIES = {
    family.name: family
    for family in (
        Family("transformer", "transformer", "Transformer", "TransformerConfig",
               "Vaswani et al., Attention Is All You Need", 2017),
        Family("gpt", "gpt", "GPT", "GPTConfig",
               "Radford et al., Improving Language Understanding by Generative Pre-Training", 2018,
               (("gpt2", "Radford et al., Language Models are Unsupervised Multitask Learners",
                 2019),
                ("gpt3", "Brown et al., Language Models are Few-Shot Learners", 2020))),
        Family("bert", "bert", "Bert", "BertConfig",
               "Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers", 2018,
               tuple((f"bert-{size}", "Turc et al., Well-Read Students Learn Better", 2019)
                     for size in ("tiny", "mini", "small", "medium"))),
        Family("transformer-xl", "transformer_xl", "TransformerXL", "TransformerXLConfig",
               "Dai et al., Transformer-XL: Attentive Language Models beyond a Fixed-Length "
               "Context", 2019),
        Family("xlnet", "xlnet", "XLNet", "XLNetConfig",
               "Yang et al., XLNet: Generalized Autoregressive Pretraining for Language "
               "Understanding", 2019),
        Family("t5", "t5", "T5", "T5Config",
               "Raffel et al., Exploring the Limits of Transfer Learning with a Unified "
               "Text-to-Text Transformer", 2019),
        Family("longformer", "longformer", "Longformer", "LongformerConfig",
               "Beltagy et al., Longformer: The Long-Document Transformer", 2020),
        Family("longformer-characters", "longformer_characters", "CharacterLongformer",
               "CharacterLongformerConfig", "Beltagy et al., Longformer, section 4", 2020),
        Family("lstm", "lstm", "LSTM", "LSTMConfig",
               "Zaremba et al., Recurrent Neural Network Regularization", 2014),
    )
}  # fmt: skip


def sizes() -> dict[str, Config]:
    """Every published size by name."""
    return {name: size for family in FAMILIES.values() for name, size in family.load()[2].items()}


def family_of(name: str) -> Family:
    """The family of a published size, or the family of that name."""
    for family in FAMILIES.values():
        if name == family.name or name in family.load()[2]:
            return family
    raise UnknownName("model", name, [*FAMILIES, *sizes()], "('regard models' lists them all)")


def create(name: str, *, initialise: bool = True, **changes: Any) -> Model:
    """A new model of a published size, or of a family's default, with fields changed by name.

    >>> create("gpt2", layers=2, width=128, heads=4)
    """
    family = family_of(name)
    model, config, known = family.load()
    made: Model = cast(Any, model)((known[name] if name in known else config()).replace(**changes))
    return made.initialise() if initialise else made


def count_parameters(name: str) -> int:
    """The exact count of a published size; nothing is allocated, whatever the size."""
    import torch

    with torch.device("meta"):
        return create(name, initialise=False).parameter_count()
