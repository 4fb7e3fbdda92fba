"""LoRA (Hu et al. 2021): a matrix W learns only a product of two thin matrices, W + α/r · B A.

The weights of the model stay as they are; only the adapters and the heads learn. An adapter belongs
to one published matrix: where query, key and value are published apart, each has its own adapter,
although they are one matrix here. B is zero at the start, so that the model is the plain one, to
the bit. `merge` adds the products to the weights and returns the plain model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.attention import Projection
from regard.attention.block import Block
from regard.attention.dropout import Dropout
from regard.attention.linear import Linear
from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.models.extensions.base import Extension, adopt

PROJECT = "project"  # the attribute of an attention that is query, key and value in one
PARTS = ("query", "key", "value")
WHOLE = "project"  # the target that adapts query, key and value by one adapter, as GPT-2 has them
HEADS = ("heads.", "output.")  # parts above the layers: heads learn whole


@dataclass(frozen=True)
class LoraOptions:
    rank: int = 8
    alpha: float = 16.0
    # Names of sites, or the ends or patterns of names; none: those of the family's paper.
    targets: list[str] = field(default_factory=list)
    dropout: float = 0.0  # of the adapters' inputs
    base: str = ""  # the directory of the model without adapters, which a saved adapter names


class LoraSite(NamedTuple):
    """A place for an adapter: rows `start` to `end` of the matrix of a module."""

    module: str  # the name of the module in the model
    part: str  # query, key, value, project, or "" for the whole of any other module
    start: int
    end: int

    @property
    def name(self) -> str:
        """The name that targets are compared with, such as blocks.0.attention.layer.query."""
        if not self.part:
            return self.module
        return f"{self.module.removesuffix(PROJECT)}{self.part}"


class Adapter(nn.Module):
    """scale · B A x, for one published matrix."""

    def __init__(self, inputs: int, outputs: int, options: LoraOptions) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.empty(options.rank, inputs))
        self.B = nn.Parameter(torch.empty(outputs, options.rank))
        self.scale = options.alpha / options.rank
        self.dropout = Dropout(options.dropout)

    def reset(self) -> None:
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # as an nn.Linear begins
        nn.init.zeros_(self.B)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(self.dropout(x), self.A), self.B) * self.scale

    def product(self) -> Tensor:
        """Returns what is added to the matrix."""
        return self.B @ self.A * self.scale


class LoraLinear(Linear):
    def __init__(self, plain: nn.Linear, options: LoraOptions) -> None:
        adopt(self, plain)
        self.lora = Adapter(plain.in_features, plain.out_features, options)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x) + self.lora(x)
        return y


class LoraProjection(Projection):
    """A projection in which parts, or all of it, have adapters."""

    def __init__(self, plain: Projection, sites: Sequence[LoraSite], options: LoraOptions) -> None:
        adopt(self, plain)
        self.spans = {site.part: (site.start, site.end) for site in sites}
        self.lora = nn.ModuleDict(
            {s.part: Adapter(plain.in_features, s.end - s.start, options) for s in sites}
        )

    def rows(self, x: Tensor, start: int, end: int) -> Tensor:
        """Returns rows start … end, which are whole parts. Only the adapters of these parts are
        computed; the adapter of the whole is computed for the rows that are wanted."""
        y = super().rows(x, start, end)
        for part, (first, last) in self.spans.items():
            low, high = max(first, start), min(last, end)
            if low < high:
                adapter: Any = self.lora[part]
                thin = F.linear(adapter.dropout(x), adapter.A)
                more = F.linear(thin, adapter.B[low - first : high - first]) * adapter.scale
                y = y + F.pad(more, (low - start, end - high))
        return y


class Lora(Extension):
    Options: ClassVar[type] = LoraOptions
    name = "lora"
    least: ClassVar[Mapping[str, int]] = {"rank": 1}
    lr_factor = 10.0  # Hu et al. 2021, appendix D: 2e-4 … 5e-4 where a whole model learns at 2e-5
    grows = False
    closes = "merge its adapters first ('regard convert RUN --merge --out DIR')"

    @classmethod
    def resolved(cls, options: dict[str, Any], directory: str) -> dict[str, Any]:
        """Fills in the base, which peft reads from a saved adapter."""
        return ({"base": directory} if directory else {}) | options

    def check(self, model: Any) -> None:
        from regard.models.extensions import extension

        for other in model.extensions:
            if not extension(other).learns:
                raise ConfigError(
                    f"a model with the extension {other!r} cannot be trained, so it can have no "
                    "adapters; add them to the model that it was made from"
                )
        o = self.options
        if not math.isfinite(o.alpha) or o.alpha <= 0:
            raise ConfigError(f"extensions.lora.alpha is {o.alpha:g}; it must be above 0")
        if not 0 <= o.dropout < 1:
            raise ConfigError(
                f"extensions.lora.dropout is {o.dropout:g}; it must be from 0 to below 1"
            )
        self.chosen(model)

    def chosen(self, model: Any) -> list[LoraSite]:
        """Returns the sites that the targets name. Every target must name one, and the adapter of
        a whole projection excludes those of its parts."""
        sites = list(sites_of(model))
        targets = self.options.targets or list(model.family.lora_targets)
        for target in targets:
            if not any(matches(site.name, target) for site in sites):
                known = dict.fromkeys(site.name.rpartition(".")[2] for site in sites)
                raise ConfigError(
                    f"extensions.lora.targets has {target!r}, and no matrix of this "
                    f"{model.family.name} has such a name; choose among "
                    f"{', '.join(known) or 'none: its layers hold no linear map'}, or give whole "
                    "names"
                )
        chosen = [s for s in sites if any(matches(s.name, target) for target in targets)]
        whole = {site.module for site in chosen if site.part == WHOLE}
        for site in chosen:
            if site.module in whole and site.part in PARTS:
                raise ConfigError(
                    f"extensions.lora.targets has {WHOLE!r} and {site.part!r}, which is a part of "
                    "it; give one of them"
                )
        return chosen

    def apply(self, model: Any) -> None:
        by_module: dict[str, list[LoraSite]] = {}
        for site in self.chosen(model):
            by_module.setdefault(site.module, []).append(site)
        parts = dict(model.named_modules(remove_duplicate=False))
        replacements: dict[int, nn.Module] = {}
        for name, sites in by_module.items():
            plain = parts[name]
            replacements[id(plain)] = (
                LoraProjection(plain, sites, self.options)
                if isinstance(plain, Projection)
                else LoraLinear(plain, self.options)
            )
        replace(model, parts, replacements)

    def initialize(self, model: Any, tokenizer: Tokenizer | None) -> None:
        for part in model.modules():
            if isinstance(part, Adapter):
                part.reset()

    def frozen(self, model: Any) -> Iterator[nn.Parameter]:
        own = {id(p) for part in model.modules() if isinstance(part, Adapter)
               for p in part.parameters()}  # fmt: skip
        for name, parameter in model.named_parameters():
            if id(parameter) not in own and not name.startswith("heads."):
                yield parameter


def matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}") or fnmatchcase(name, target)


def sites_of(model: Any) -> Iterator[LoraSite]:
    """Yields every place for an adapter: the linear maps of the layers."""
    layers = {
        id(part)
        for layer in model.modules()
        if isinstance(layer, Block)
        for part in layer.modules()
    }
    for name, part in model.named_modules():
        if id(part) not in layers or name.startswith(HEADS):
            continue
        if isinstance(part, Projection):
            rows = part.parts()
            yield LoraSite(name, WHOLE, 0, sum(rows))
            for i, piece in enumerate(PARTS):
                yield LoraSite(name, piece, sum(rows[:i]), sum(rows[: i + 1]))
        elif type(part) in (nn.Linear, Linear, LoraLinear):
            yield LoraSite(name, "", 0, part.out_features)


def replace(
    model: nn.Module, parts: Mapping[str, nn.Module], replacements: Mapping[int, nn.Module]
) -> None:
    """Puts the replacements in the places of the parts; one part may have several places."""
    for name, part in parts.items():
        if id(part) in replacements:
            place, _, last = name.rpartition(".")
            setattr(model.get_submodule(place), last, replacements[id(part)])


# -- merged


@torch.no_grad()
def merge(model: Any) -> Any:
    """Adds the adapters to the weights, in place, and returns the model without the extension."""
    if Lora.name not in model.extensions:
        raise ConfigError(
            "this model has no LoRA adapters, so there is nothing to merge; give a run that was "
            "trained with --lora, or a directory of peft"
        )
    parts = dict(model.named_modules(remove_duplicate=False))
    replacements: dict[int, nn.Module] = {}
    for part in parts.values():
        if isinstance(part, LoraLinear | LoraProjection) and id(part) not in replacements:
            replacements[id(part)] = merged(part)
    replace(model, parts, replacements)
    del model.extensions[Lora.name]
    return model


def merged(part: LoraLinear | LoraProjection) -> nn.Module:
    kind: type[nn.Linear] = Projection if isinstance(part, LoraProjection) else nn.Linear
    plain = kind.__new__(kind)
    adopt(plain, part)
    del plain.lora
    weight = part.weight.detach().clone()
    if isinstance(part, LoraProjection):
        del plain.spans
        for name, (start, end) in part.spans.items():
            adapter: Any = part.lora[name]
            weight[start:end] += adapter.product()
    else:
        weight += part.lora.product()
    plain.weight = nn.Parameter(weight, part.weight.requires_grad)
    return plain


def options_in(text: str) -> dict[str, Any]:
    """Parses rank=8,alpha=16,targets=query+value, as `--lora` has it; "default" sets nothing."""
    options: dict[str, Any] = {}
    kinds: dict[str, type] = {"rank": int, "alpha": float, "dropout": float}
    for word in text.split(",") if text not in ("", "default") else ():
        name, _, value = word.strip().partition("=")
        try:
            options[name] = value.split("+") if name == "targets" else kinds.get(name, str)(value)
        except ValueError:
            raise ConfigError(
                f"--lora has {word.strip()!r}; write it as in rank=8,alpha=16,targets=query+value"
            ) from None
    Lora.of(options)  # refuses unknown names
    return options
