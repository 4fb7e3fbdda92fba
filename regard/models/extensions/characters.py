"""Words and their characters (Yang et al. 2017, "Words or characters? Fine-grained gating").

From a token's embedding e and a vector c computed from its spelling, the model continues with
    h = g ⊙ c + (1 - g) ⊙ e,    g = σ(W v + b)
where the features v of the gate are the token's own embedding. An output that is tied to the token
embedding stays tied to it: the spelling changes only the input.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.models.adaptive import AdaptiveEmbedding
from regard.models.extensions.base import Extension, adopt

PADDING, OTHER = 0, 1  # after a spelling's end; a character too rare to have its own number
FIRST = 2
STD = 0.02


@dataclass(frozen=True)
class CharacterOptions:
    network: str = "gru"  # in both directions, as in the paper; "conv": windows of characters
    most: int = 16  # the most characters of a token that are read
    alphabet: int = 1024  # the number of character vectors; the rarest characters share one
    size: int = 32  # the width of a character vector
    window: int = 3  # conv: the characters of a window
    open: float = -2.0  # b at the start: the lower, the nearer training starts to the plain model


class CharacterConvolution(nn.Module):
    """The maximum of each feature over all windows of a spelling (Kim 2014)."""

    def __init__(self, size: int, width: int, window: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(size, width, window, padding=window - 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Maps x [N, M, size], with zeros after each spelling, to [N, width]."""
        y: Tensor = torch.tanh(self.conv(x.mT))
        room = lengths[:, None] + self.conv.kernel_size[0] - 1  # windows that see a character
        seen = torch.arange(y.size(2), device=x.device) < room
        return y.masked_fill(~seen[:, None], -1.0).amax(2)


class BidirectionalEnds(nn.Module):
    """The last states of a recurrent network that reads a spelling from both sides."""

    def __init__(self, size: int, width: int, window: int) -> None:
        super().__init__()
        self.forth = nn.GRU(size, width // 2, batch_first=True)
        self.back = nn.GRU(size, width - width // 2, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        place = torch.arange(x.size(1), device=x.device)
        turned = (lengths[:, None] - 1 - place).clamp_min(0)
        backwards = x.gather(1, turned[..., None].expand_as(x))
        last = (lengths - 1).clamp_min(0)[:, None, None]
        ends = [
            states.gather(1, last.expand(-1, 1, states.size(2)))[:, 0]
            for states in (self.forth(x)[0], self.back(backwards)[0])
        ]
        return torch.cat(ends, -1)


NETWORKS: dict[str, Any] = {"gru": BidirectionalEnds, "conv": CharacterConvolution}


class CharacterMixer(nn.Module):
    """A module beside a token embedding that mixes character vectors into its output."""

    table: Tensor  # [words, most]: the character numbers of each word, then PADDING

    def __init__(self, words: int, width: int, o: CharacterOptions) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(words, o.most, dtype=torch.int32))
        self.characters = nn.Embedding(o.alphabet, o.size, padding_idx=PADDING)
        self.network = NETWORKS[o.network](o.size, width, o.window)
        self.gate = nn.Linear(width, width)

    def vectors(self, input_ids: Tensor) -> Tensor:
        """Returns c for tokens [N]; zeros for a token without a spelling."""
        known = input_ids < self.table.size(0)
        spelled = self.table[input_ids * known].long() * known[:, None]
        lengths = (spelled != PADDING).sum(1)
        c: Tensor = self.network(self.characters(spelled), lengths)
        return c * (lengths > 0)[:, None]

    def forward(self, input_ids: Tensor, e: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # the compiler needs static shapes
            c = self.vectors(input_ids.flatten()).unflatten(0, input_ids.shape)
        else:
            different, which = input_ids.unique(return_inverse=True)
            c = self.vectors(different)[which]
        return torch.lerp(e, c.to(e.dtype), torch.sigmoid(self.gate(e)).to(e.dtype))

    def grow(self, words: int) -> None:
        """Adds rows for tokens that were added later; they have no spelling."""
        self.table = F.pad(self.table, (0, 0, 0, words - self.table.size(0)))


class SpelledTable(nn.Module):
    """Replaces a token embedding by one whose vectors also depend on the spelling of the tokens."""

    def __init__(self, plain: nn.Module, spelling: CharacterMixer) -> None:
        adopt(self, plain)
        self.spelling = spelling

    def forward(self, input_ids: Tensor) -> Tensor:
        y: Tensor = self.spelling(input_ids, super().forward(input_ids))
        return y


class SpelledEmbedding(SpelledTable, nn.Embedding):
    pass


class SpelledAdaptive(SpelledTable, AdaptiveEmbedding):
    pass


KINDS: dict[type, type] = {nn.Embedding: SpelledEmbedding, AdaptiveEmbedding: SpelledAdaptive}


def owner_of(model: Any) -> Any:
    """Returns the module whose attribute `tokens` is the token embedding of a model."""
    return model if hasattr(model, "tokens") else model.embeddings


class Characters(Extension):
    Options: ClassVar[type] = CharacterOptions
    name = "characters"
    choices: ClassVar = {"network": NETWORKS}
    least: ClassVar = {"most": 1, "alphabet": FIRST + 1, "size": 1, "window": 1}

    def apply(self, model: Any) -> None:
        owner, c = owner_of(model), model.config
        spelling = CharacterMixer(c.vocab_size, c.width, self.options)
        owner.tokens = KINDS[type(owner.tokens)](owner.tokens, spelling)

    def initialize(self, model: Any, tokenizer: Tokenizer | None) -> None:
        """Takes spellings from the tokenizer's entries, with their marks of the start of a word."""
        if tokenizer is None or tokenizer.fast is None:
            raise ConfigError(
                "the extension characters needs a tokenizer that knows how tokens are spelled: "
                'call extend(model, "characters", tokenizer=…) with one from a tokenizer.json'
            )
        spelling: Any = owner_of(model).tokens.spelling
        spelling.table.copy_(spellings(tokenizer, spelling.table.size(0), self.options))
        with torch.no_grad():
            for name, value in spelling.named_parameters():
                if value.dim() > 1 and not name.startswith("gate"):
                    nn.init.normal_(value, std=STD if name.startswith("characters") else 0.1)
                else:
                    nn.init.zeros_(value)
            spelling.characters.weight[PADDING].zero_()
            spelling.gate.bias.fill_(self.options.open)


def spellings(tokenizer: Tokenizer, words: int, o: CharacterOptions) -> Tensor:
    """Returns a row of character numbers for each token; frequent characters have low numbers."""
    entries = [tokenizer.ready.id_to_token(i) or "" for i in range(words)]
    counts = Counter(character for entry in entries for character in entry)
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    number = {character: i for i, character in enumerate(ranked[: o.alphabet - FIRST], FIRST)}
    table = torch.zeros(words, o.most, dtype=torch.int32, device="cpu")
    for row, entry in zip(table, entries, strict=True):
        numbers = [number.get(character, OTHER) for character in entry[: o.most]]
        row[: len(numbers)] = torch.tensor(numbers, dtype=torch.int32, device="cpu")
    return table
