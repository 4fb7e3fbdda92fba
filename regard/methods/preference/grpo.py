"""Reinforcement learning with GRPO (Shao et al. 2024, 4.1): the model writes replies, each reply
gets a reward, and a reply that is better than its group becomes likelier. A KL penalty keeps the
model near the one it started as.

For each prompt a group of G replies o is sampled from the current model. With the advantage A = (r
- mean) / deviation of its group, and ratio = π(token) / π_when_drawn(token), the loss is

    Σ_replies 1/|o| Σ_tokens  -min(ratio · A, clip(ratio, 1 ± ε) · A) + β · k3(π ‖ start)

divided by the number of replies, which is known beforehand: prompts · G. Every group is used for
one step, as in the paper, so that a step depends only on the weights, the seed and the step number.
The ratio is then 1, except for rounding and for dropout (if it is on).

β is fixed: a β that adapts from step to step would be state outside of the checkpoints. With a
`limit` the penalty grows faster for a reply that is far away: if its KL per token is above the
limit, it counts KL · KL/limit, which needs no state.
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
EVEN = 1e-4  # added to the deviation, so that a group of equal rewards has advantage 0 (as in trl)


@dataclass(frozen=True)
class ReinforceOptions:
    family: str = ""  # filled in by the run
    form: str | None = None  # "text" or "dialogue"; None: as the model learned
    reward: str | None = None  # a reward model's directory, or a rule such as contains:thanks
    beta: float = 0.04  # the weight of the KL penalty
    group: int = 8  # replies to each prompt
    max_new_tokens: int | None = None  # of a reply; None: 32, or half of a shorter row
    clip: float = 0.2  # ε: how far a ratio may differ from 1
    limit: float | None = None  # the KL per token above which the penalty grows; None: never
    reference: str | None = None  # a model directory to use instead of the start
    dropout: bool = False  # while learning; sampling never uses dropout
    digest: str | None = None  # filled in by the run: weights of the start and of the reward model


class SampledReplies(NamedTuple):
    """Prompts with their sampled replies [R, T], and the log-probability of each token when it was
    sampled."""

    tokens: Tensor
    scored: Tensor  # [R, T - 1]: whether a target is a token of a reply
    drawn: Tensor  # [R, T - 1]: the log-probabilities when the tokens were sampled
    prompts: Ids
    replies: Ids


class Reinforce(PreferenceObjective):
    """The objective of GRPO. A sample is a prompt; equal prompts count once, however many pairs
    they have in the file."""

    Options: ClassVar[type] = ReinforceOptions
    name = "reinforce"

    def prepare(self) -> None:
        o = self.options
        if o.max_new_tokens is None:
            o = self.options = replace(o, max_new_tokens=min(TOKENS, self.seq_len // 2))
        if o.group < 2 or o.max_new_tokens < 1:
            raise ConfigError(
                f"objective.group is {o.group} and max_new_tokens {o.max_new_tokens}; a group "
                "needs at least 2 replies to compare, each of at least 1 token"
            )
        for name in ("beta", "limit", "clip"):
            if (getattr(o, name) or 0) < 0:
                raise ConfigError(
                    f"objective.{name} is {getattr(o, name):g}; it cannot be negative"
                )
        if o.limit and not o.beta:
            raise ConfigError(
                "objective.limit strengthens the KL penalty, but objective.beta is 0; set beta "
                "above 0, or leave the limit out"
            )
        if o.max_new_tokens >= self.seq_len:
            raise ConfigError(
                f"objective.max_new_tokens is {o.max_new_tokens}, and batch.seq_len is "
                f"{self.seq_len}; a prompt needs room before its reply: choose fewer new tokens, "
                "or a larger batch.seq_len"
            )
        self.weights = {"reward": 0.0, "kl": 0.0}  # only reported
        super().prepare()
        corpus = self.corpus
        self.judge = judge_of(o.reward, corpus.tokenizer, corpus.special, self.options.form)

    def encode(self) -> None:
        o, room = self.options, self.seq_len - self.options.max_new_tokens
        prompts: dict[tuple[int, ...], None] = {}
        examples: Any = self.corpus.examples
        for prompt in prompts_of(examples, self.corpus.tokenizer, self.corpus.special, o.form):
            ids, cut = prompt.fit(room)
            if tuple(ids) not in prompts:
                self.cut += cut
                prompts[tuple(ids)] = None
        if not prompts:
            raise refuse_none(self.corpus, 0, self.seq_len)
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
        """Returns a prompt. Its `number` is the random key of its replies, in whichever process
        they are sampled."""
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
        """Samples a group of replies to each prompt from the model's own distribution. No token is
        forbidden or made likelier: otherwise the ratios would be those of another distribution."""
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
                for each in step:
                    replies[each.number].append(each.token)
                    chances[each.number].append(each.logprob)
        torch.clear_autocast_cache()  # older torch versions keep casts that have no gradient
        prompts = [prompt for prompt in prompts for _ in range(o.group)]
        return self.laid_out(prompts, replies, chances, next(writer.parameters()))

    def reader(self, model: Any) -> DecodeState:
        """Returns the decoder. A memory shorter than a row would see less than `loss` sees, which
        reads a row at once, and the two distributions would differ. In that case the whole row is
        read at every step."""
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
        """Returns the metrics. `reward` and `kl` (per token) are means over replies, `length` is in
        tokens, and `ended` is the share of replies that ended by themselves."""
        means = {k: float(v) / max(totals.counts[k], 1e-9) for k, v in totals.sums.items()}
        seen = {name: float(total) / max(of, 1) for name, (total, of) in totals.seen.items()}
        return {
            "reward": means["reward"],
            "kl": means["kl"],
            "loss": means[self.name],
            "length": seen["tokens"],
            "ended": seen["ended"],
        }

    best_by = "metric"

    def better(self, new: float, old: float) -> bool:
        return new > old

    def badness(self, totals: Loss) -> float:
        """Returns the negative reward: the loss of a policy does not say how good it is."""
        return -self.measure(totals)["reward"]


def advantages(rewards: Tensor) -> Tensor:
    """Returns (r - mean) / deviation within each group (a row of [P, G]), with the sample
    deviation."""
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (rewards.std(1, keepdim=True) + EVEN)


def clipped(change: Tensor, gain: Tensor, clip: float) -> Tensor:
    """Returns min(ratio · A, clip(ratio, 1 - ε, 1 + ε) · A), where `change` is the logarithm of the
    ratio: moving farther than ε in one step gains nothing (Schulman et al. 2017, eq. 7)."""
    ratio = change.exp()
    return torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
