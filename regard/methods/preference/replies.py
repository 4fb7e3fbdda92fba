"""What all objectives of preference tuning share: the log-probability of replies, and the frozen
model that the training started from. `regard.tasks.replies` encodes prompts and replies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels import wide
from regard.core.errors import ConfigError, InputError
from regard.core.files import copy_file
from regard.core.seeding import seed_torch
from regard.data.batching import by_length
from regard.data.tokenizer import Tokenizer
from regard.decoding.decode_state import at_rest
from regard.formats.directory import load
from regard.methods.runs import weights_digest
from regard.models import FAMILIES
from regard.models.output import CHUNK
from regard.objectives.base import Batch, Hooks, Objective
from regard.objectives.reading import check_room, inner, read_on
from regard.tasks.as_text import plain
from regard.tasks.corpus import TaskCorpus
from regard.tasks.labeled import TASK
from regard.tasks.replies import check_family, form_of, notes_of, spoken
from regard.tasks.task_tokens import grown

# Frozen models by path, device and dtype; training and validation share them.
HELD: WeakValueDictionary[tuple[Any, ...], nn.Module] = WeakValueDictionary()


# -- how likely a reply is


def log_probabilities(model: Any, tokens: Tensor, scored: Tensor) -> Tensor:
    """Returns log p(token t + 1 | tokens up to t) [B, T - 1] of rows [B, T] where `scored` [B, T -
    1] is true, and 0 elsewhere. Padding must be on the right, where no token before it can see it.

    The logits of a large vocabulary are computed chunk by chunk, and once more in the backward
    pass.
    """
    output, hidden = inner(model).output, read_on(model, tokens[:, :-1])
    rows, words = hidden[scored], tokens[:, 1:][scored]
    size = max(1, CHUNK // inner(model).config.vocab_size)
    again = torch.is_grad_enabled() and rows.size(0) > size

    def each(hidden: Tensor, words: Tensor) -> Tensor:
        """Returns log p of each token. The log-probabilities of an adaptive output stay as they
        are."""
        return -F.cross_entropy(wide(output(hidden)), words, reduction="none")

    parts = [
        checkpoint(each, h, w, use_reentrant=False) if again else each(h, w)
        for h, w in zip(rows.split(size), words.split(size), strict=True)
    ]
    chances = torch.cat(parts)
    return chances.new_zeros(scored.shape).masked_scatter(scored, chances)


def k3(policy: Tensor, start: Tensor) -> Tensor:
    """Estimates KL(policy ‖ start) from the log-probabilities of tokens that the policy sampled:
    exp(d) - d - 1 with d = log start - log policy (Schulman 2020). The estimate is never below 0
    and unbiased. For texts from another source it only says how far the two models are apart."""
    d = start - policy
    return (torch.expm1(d) - d).clamp_min(0)  # rounding could make it negative


# -- frozen models


def frozen(path: Path, model: Any, fit: Callable[[Any], Any] | None = None, *key: int) -> Any:
    """Returns the model of a directory, frozen, on the device and in the dtype of `model`. `fit`
    may change it first, depending on `key`. The caller must hold on to the model: one that nobody
    holds is loaded again."""
    like = next(inner(model).parameters())
    place = (str(path.resolve()), like.device, like.dtype, *key)
    start: Any = HELD.get(place)
    if start is None:
        start = load(path).model
        start = start if fit is None else fit(start)
        start = start.requires_grad_(False).eval().to(like.device, like.dtype)
        HELD[place] = start
    return start


class PreferenceObjective(Objective, Hooks):
    """The base of the objectives for a causal model that stays near the model it started as. A
    subclass implements `encode` and counts the examples that it had to cut."""

    corpus: TaskCorpus  # type: ignore[assignment]
    sizes: np.ndarray  # tokens of each sample
    longest: int = 0  # tokens of the longest row
    first: Any = None  # the last result of `start`, held so that it is loaded once

    def prepare(self) -> None:
        able = [name for name, card in FAMILIES.items() if card.model.causal]
        check_family(self, able, "learn from preferences: it does not generate text")
        form = form_of(self.options.form, self.corpus.path)
        self.options = replace(self.options, form=form)
        self.cut = self.left = 0
        if any(spoken(example, form) for example in self.corpus.examples):  # type: ignore[arg-type]
            self.corpus.tokenizer = plain(self.corpus.tokenizer)
        self.encode()
        if self.options.reference:
            check_same_tokenizer(self.options.reference, self.corpus.tokenizer, "reference")
        digest = weights_digest(self.auxiliary_models())
        if self.options.digest not in (None, digest):
            raise InputError(
                f"{' or '.join(self.auxiliary_models())} has changed since this run began; a run "
                "resumes only with the same weights: restore them, or begin a new run"
            )
        self.options = replace(self.options, digest=digest)

    def auxiliary_models(self) -> list[str]:
        return [place for place in (self.options.reference or self.corpus.path,) if place]

    def encode(self) -> None:
        raise NotImplementedError

    def tokens_in(self, batch: Batch) -> int:
        """Counts the tokens of a batch. Replies that the model will write have no known length yet,
        so they are not counted."""
        return int(batch["attention_mask"].sum())

    @property
    def note(self) -> str:
        return notes_of(self.corpus, self.cut, self.left, self.seq_len)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def mean_len(self) -> float:
        return float(self.sizes.mean())

    @property
    def max_len(self) -> int:
        """Returns the tokens of the longest sample, which consists of several rows."""
        return int(self.sizes.max())

    def order(self, epoch: int) -> np.ndarray | None:
        """Returns the order of the samples: those of a step have similar lengths, and in validation
        the order is always the same."""
        epoch = epoch if self.learning else 0
        if self.order_of[0] != epoch:
            self.order_of = epoch, by_length(self.sizes, self.batch_size, self.seed, epoch)
        return self.order_of[1]

    def settled(self) -> dict[str, Any]:
        return {"form": self.options.form, "digest": self.options.digest}

    # -- the model, and the one it started as

    def adapt_model(self, model: Any) -> Any:
        if FAMILIES[self.options.family].task_tokens:  # GPT-1 has no token that ends a text
            return grown(model, max(self.corpus.vocab_size, self.corpus.special.ids()[-1] + 1))
        return model

    def check(self, model: Any) -> None:
        family = inner(model).family.name
        if family != self.options.family:
            raise ConfigError(
                f"the model is a {family}, but the objective was built for {self.options.family}; "
                "use a model of that family"
            )
        check_room(model, self.longest)

    def start(self, model: Any) -> Any:
        """Returns the model before training, or the one that `reference` names. It is never changed
        or saved."""
        place = Path(self.options.reference or self.corpus.path)

        def fit(start: Any) -> Any:
            with torch.random.fork_rng():  # new tokens get the same rows as in the model
                seed_torch(self.seed, "weights")
                start = self.adapt_model(start)
            if start.config.vocab_size != inner(model).config.vocab_size:
                raise ConfigError(
                    f"{place} has a vocabulary of {start.config.vocab_size:,} tokens and the model "
                    f"one of {inner(model).config.vocab_size:,}; a reference needs the same one"
                )
            return start

        self.first = frozen(place, model, fit, self.seed)
        return self.first

    def still(self, model: Any) -> AbstractContextManager[Any]:
        """Turns dropout off, unless the options ask for it, because the start model has none
        either."""
        return nullcontext() if self.options.dropout else at_rest(inner(model))

    def save_extras(self, model: Any, out: Path) -> None:
        """Copies task.json of the start model, so that the run still answers the same task."""
        file = Path(self.corpus.path) / TASK
        if file.is_file():
            copy_file(file, out / TASK)


def check_same_tokenizer(path: str, ours: Tokenizer, what: str) -> None:
    """Raises ConfigError for a model with another tokenizer: its scores would be about
    other texts."""
    if not Path(path, "config.json").is_file():
        raise ConfigError(f"{path} is no model directory; give one as the {what}")
    theirs = Tokenizer.open(Path(path))
    if theirs is None or theirs.ready.get_vocab() != ours.ready.get_vocab():
        other = "no tokenizer" if theirs is None else f"another tokenizer ({len(theirs):,} tokens)"
        raise ConfigError(
            f"{path} has {other}, and the model's tokenizer has {len(ours):,} tokens; a {what} "
            "must have the same tokenizer as the model"
        )
