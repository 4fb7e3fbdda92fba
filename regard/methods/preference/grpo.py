"""Reinforcement: the model writes replies, each is given a reward, and what was better than its
group becomes likelier, on a leash to the start (GRPO: Shao et al. 2024, 4.1).

For each prompt a group of G replies o is drawn from the model as it is. With the advantage
A = (r - mean) / deviation of its group, and ratio = π(token) / π_when_drawn(token), it learns

    Σ_replies 1/|o| Σ_tokens  -min(ratio · A, clip(ratio, 1 ± ε) · A) + β · k3(π ‖ start)

over the number of replies, which is known beforehand: prompts · G. Every group is used for one
step, as in the paper, so that a step stays a function of weights, seed and number, and the ratio is
1 but for rounding, and for dropout where it is asked for.

The leash is β. It is fixed: one that adapts from step to step would be a memory outside of the
checkpoints. With a `limit` it pulls harder where it is stretched: a reply whose KL a token is
above the limit counts KL · KL/limit, which needs no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.data.batching import Ragged, padded
from regard.decoding.decode_state import DecodeState, Recomputing, at_rest, reader_for
from regard.decoding.sampling import DecodingLoop, Sampler
from regard.methods.preference.replies import (
    PreferenceObjective,
    k3,
    log_probabilities,
)
from regard.methods.preference.rewards import Ids, judge_of
from regard.objectives.base import Batch, Loss, Sample
from regard.objectives.causal import padding
from regard.objectives.reading import inner
from regard.tasks.replies import prompts_of, refuse_none

TOKENS = 32
EVEN = 1e-4  # added to a deviation: a group of equals has no advantage (as in trl)


@dataclass(frozen=True)
class ReinforceOptions:
    family: str = ""  # settled
    form: str | None = None  # text, dialogue: how a text is read; None: as the model learned
    reward: str | None = None  # a reward model's directory, or a rule such as contains:thanks
    beta: float = 0.04  # the leash
    group: int = 8  # replies to each prompt
    max_new_tokens: int | None = None  # of a reply, at most; None: 32, or half of a short row
    clip: float = 0.2  # ε: how far a ratio may go
    limit: float | None = None  # KL a token from which the leash pulls harder; None: never
    reference: str | None = None  # a model directory instead of the start
    dropout: bool = False  # while learning; what writes never has any
    digest: str | None = None  # settled: of the weights of the start and of the reward model


class SampledReplies(NamedTuple):
    """Replies [R, T] behind their prompts, and what was thought of each token when it was drawn."""

    tokens: Tensor
    scored: Tensor  # [R, T - 1]: which targets are tokens of a reply
    drawn: Tensor  # [R, T - 1]: their log-probabilities then
    prompts: Ids
    replies: Ids


class Reinforce(PreferenceObjective):
    """A sample is a prompt; each one counts once, however many pairs it has in the file."""

    Options: ClassVar[type] = ReinforceOptions
    name = "reinforce"

    def prepare(self) -> None:
        o = self.options
        if o.max_new_tokens is None:
            o = self.options = replace(o, max_new_tokens=min(TOKENS, self.length // 2))
        if o.group < 2 or o.max_new_tokens < 1:
            raise ConfigError(
                f"objective.group is {o.group} and max_new_tokens {o.max_new_tokens}; a reply is "
                "compared with others, so a group has at least 2, of at least 1 token"
            )
        for name in ("beta", "limit", "clip"):
            if (getattr(o, name) or 0) < 0:
                raise ConfigError(
                    f"objective.{name} is {getattr(o, name):g}; it cannot be negative"
                )
        if o.limit and not o.beta:
            raise ConfigError("objective.limit makes a leash pull harder; give a beta above 0")
        if o.max_new_tokens >= self.length:
            raise ConfigError(
                f"objective.max_new_tokens is {o.max_new_tokens}, and a row has {self.length}; "
                "choose fewer, or a larger batch.seq_len: a prompt needs room before its reply"
            )
        self.weights = {"reward": 0.0, "kl": 0.0}  # only told
        super().prepare()
        corpus = self.corpus
        self.judge = judge_of(o.reward, corpus.tokenizer, corpus.special, self.options.form)

    def encode(self) -> None:
        o, room = self.options, self.length - self.options.max_new_tokens
        prompts: dict[tuple[int, ...], None] = {}
        examples: Any = self.corpus.examples
        for prompt in prompts_of(examples, self.corpus.tokenizer, self.corpus.special, o.form):
            ids, cut = prompt.fit(room)
            if tuple(ids) not in prompts:
                self.cut += cut
                prompts[tuple(ids)] = None
        if not prompts:
            raise refuse_none(self.corpus, 0, self.length)
        self.rows = Ragged(list(prompts))
        self.sizes = o.group * (self.rows.sizes + o.max_new_tokens)
        self.longest = int(self.rows.sizes.max()) + o.max_new_tokens

    def auxiliary_models(self) -> list[str]:
        reward = self.options.reward
        own = [reward] if reward and Path(reward).is_dir() else []
        return [*super().auxiliary_models(), *own]

    def settled(self) -> dict[str, Any]:
        return super().settled() | {"max_new_tokens": self.options.max_new_tokens}

    def sample(self, epoch: int, index: int) -> Sample:
        """`number` is what the draws depend on, whoever makes them."""
        return {"tokens": self.rows[index], "number": np.array(epoch * len(self) + index)}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        tokens, attention_mask = padded([s["tokens"] for s in samples], padding(self.corpus))  # type: ignore[arg-type]
        number = np.stack([s["number"] for s in samples])
        batch = {"tokens": tokens, "attention_mask": attention_mask, "number": number}
        return {name: torch.from_numpy(value) for name, value in batch.items()}

    def targets_in(self, batch: Batch) -> int:
        return int(batch["tokens"].size(0)) * self.options.group * self.options.max_new_tokens

    def counts(self, batch: Batch) -> dict[str, float]:
        replies = float(batch["tokens"].size(0) * self.options.group)
        return dict.fromkeys((self.name, "reward", "kl"), replies)

    # -- writing

    def write(self, model: Any, batch: Batch) -> SampledReplies:
        """A group of replies to each prompt: draws from the model's own distribution, nothing
        forbidden and nothing made likelier, or the ratios would be those of another model.
        """
        o, writer, end = self.options, inner(model), self.corpus.special.end
        rows = zip(batch["tokens"], batch["attention_mask"], strict=True)
        prompts = [row[attention_mask].tolist() for row, attention_mask in rows]
        keys = [(number, i) for number in batch["number"].tolist() for i in range(o.group)]
        replies: Ids = [[] for _ in keys]
        chances: list[list[float]] = [[] for _ in keys]
        with at_rest(writer), torch.inference_mode():
            reader = self.reader(writer)
            logits = reader.begin(prompts, o.max_new_tokens, o.group).repeat_interleave(o.group, 0)
            pick = Sampler(self.seed, keys)
            walk = DecodingLoop(
                reader, logits, pick=pick, process=None, ends=[end], limit=o.max_new_tokens
            )
            for step in walk.steps():
                for number, token, chance in step:
                    replies[number].append(token)
                    chances[number].append(chance)
        torch.clear_autocast_cache()  # older versions keep casts without a gradient
        prompts = [prompt for prompt in prompts for _ in range(o.group)]
        return self.laid_out(prompts, replies, chances, next(writer.parameters()))

    def reader(self, model: Any) -> DecodeState:
        """A memory shorter than a row would see less than `loss` does, which reads a row at once:
        two distributions. There the whole row is read at every step.
        """
        limits = getattr(model, "limits", None)
        if limits is not None and limits.mem_len < min(limits.reach, self.longest):
            return Recomputing(model)
        return reader_for(model)

    def laid_out(
        self, prompts: Ids, replies: Ids, chances: list[list[float]], like: Tensor
    ) -> SampledReplies:
        rows = [np.array([*p, *r]) for p, r in zip(prompts, replies, strict=True)]
        tokens, attention_mask = padded(rows, padding(self.corpus))  # type: ignore[arg-type]
        lengths = np.array([len(prompt) for prompt in prompts])
        scored = (np.arange(1, tokens.shape[1]) >= lengths[:, None]) & attention_mask[:, 1:]
        drawn = np.zeros(scored.shape)
        drawn[scored] = [chance for row in chances for chance in row]
        return SampledReplies(
            torch.from_numpy(tokens).to(like.device),
            torch.from_numpy(scored).to(like.device),
            torch.from_numpy(drawn).to(like.device, like.dtype),
            prompts,
            replies,
        )

    # -- learning

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        o, texts = self.options, self.write(model, batch)
        worth = self.judge(model, texts.prompts, texts.replies)
        rewards = torch.tensor(worth, dtype=torch.float64)
        with self.still(model):
            ours = log_probabilities(model, texts.tokens, texts.scored)
        with torch.no_grad():
            theirs = log_probabilities(self.start(model), texts.tokens, texts.scored)
        sizes = texts.scored.sum(1)
        gain = advantages(rewards.view(-1, o.group)).flatten().to(ours.device, ours.dtype)
        policy = clipped(ours - texts.drawn.to(ours.dtype), gain[:, None], o.clip)
        lost = -(policy * texts.scored).sum(1) / sizes
        far = k3(ours, theirs).sum(1) / sizes
        pull = far * (far / o.limit).clamp_min(1) if o.limit else far
        sums = {
            self.name: (lost + o.beta * pull).sum(),
            "reward": rewards.sum().to(ours.device, ours.dtype),
            "kl": far.detach().sum(),
        }
        ended = [reply[-1] == self.corpus.special.end for reply in texts.replies]
        figures = {
            "tokens": (sizes.sum(), len(sizes)),
            "ended": (torch.tensor(float(sum(ended))), len(sizes)),
        }
        return Loss(sums, self.counted(batch), figures)

    def measure(self, totals: Loss) -> dict[str, float]:
        """`reward` and `kl` (a token) are means over replies, `length` is in tokens, and `ended`
        the share of replies that came to their end.
        """
        means = {k: float(v) / max(totals.counts[k], 1e-9) for k, v in totals.sums.items()}
        seen = {name: float(total) / max(of, 1) for name, (total, of) in totals.seen.items()}
        return {
            "reward": means["reward"],
            "kl": means["kl"],
            "loss": means[self.name],
            "length": seen["tokens"],
            "ended": seen["ended"],
        }

    def better(self, new: float, old: float) -> bool:
        return new > old

    def badness(self, totals: Loss) -> float:
        """The loss of a policy says nothing of how good it is."""
        return -self.measure(totals)["reward"]


def advantages(rewards: Tensor) -> Tensor:
    """(r - mean) / deviation of each group, a row of [P, G]; the deviation is that of a sample."""
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (rewards.std(1, keepdim=True) + EVEN)


def clipped(change: Tensor, gain: Tensor, clip: float) -> Tensor:
    """min(ratio · A, clip(ratio, 1 - ε, 1 + ε) · A), of the ratio's logarithm: nothing is gained by
    going farther than ε in one step (Schulman et al. 2017, eq. 7).
    """
    ratio = change.exp()
    return torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
