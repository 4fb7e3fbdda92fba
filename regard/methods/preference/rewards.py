"""Rewards for generated replies: by the directory of a reward model, by a rule, or by a
function.

    length          the number of words    length:N     lower, the farther from N words
    contains:WORD   1 if it occurs         share:WORD   the share of the words that are WORD
    distinct        the share of distinct words

Words are separated by spaces. For `contains`, WORD may be a part of a word, or several words. Rules
are for trying things out: a model learns to neglect whatever the rule does not see. In Python, any
function of (prompts, replies) can be registered under a name:

    >>> register("polite", lambda prompts, replies: [float("please" in r) for r in replies])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.attention.kernels import wide
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.batching import padded
from regard.data.corpus import Special
from regard.data.tokenizer import Tokenizer
from regard.methods.preference.replies import check_same_tokenizer, frozen
from regard.methods.runs import model_facts
from regard.tasks.labeled import task_facts

Ids = list[list[int]]
Rule = Callable[[Sequence[str], Sequence[str]], Sequence[float]]  # (prompts, replies) -> worth


# -- rules


def by_words(worth: Callable[[list[str]], float]) -> Rule:
    """Returns a rule that scores the lower-case words of each reply."""
    return lambda prompts, replies: [worth(reply.lower().split()) for reply in replies]


def length(argument: str) -> Rule:
    if not argument:
        return by_words(lambda words: float(len(words)))
    if not argument.isdecimal() or int(argument) == 0:
        raise ConfigError(
            f"the reward is 'length:{argument}'; give a number of words, as length:20"
        )
    wanted = int(argument)
    return by_words(lambda words: -abs(len(words) - wanted) / wanted)


def contains(argument: str) -> Rule:
    word = named("contains", argument)
    return lambda prompts, replies: [float(word in reply.lower()) for reply in replies]


def share(argument: str) -> Rule:
    word = named("share", argument)
    return by_words(lambda words: words.count(word) / max(len(words), 1))


def distinct(argument: str) -> Rule:
    return by_words(lambda words: len(set(words)) / max(len(words), 1))


def named(rule: str, word: str) -> str:
    if not word.strip():
        raise ConfigError(f"the reward {rule!r} needs a word; give it as in {rule}:thanks")
    return word.strip().lower()


RULES: dict[str, Callable[[str], Rule]] = {
    "length": length,
    "contains": contains,
    "share": share,
    "distinct": distinct,
}


def register(name: str, rule: Rule) -> None:
    """Registers a function as a reward. It must be registered again before a run is resumed."""
    if ":" in name or name in ("", "length", "contains", "share", "distinct"):
        raise ConfigError(
            f"a reward cannot be called {name!r}; choose another name, without a colon"
        )
    RULES[name] = lambda argument: rule


# -- judges


class RewardFunction:
    """Gives each generated reply its reward. `model` is the model that wrote it; its device and
    dtype are used."""

    def __call__(self, model: Any, prompts: Ids, replies: Ids) -> list[float]:
        rewards = [float(worth) for worth in self.judge(model, prompts, replies)]
        if len(rewards) != len(replies) or not all(map(math.isfinite, rewards)):
            strange = next((w for w in rewards if not math.isfinite(w)), None)
            raise InputError(
                f"the reward returned {len(rewards)} numbers for {len(replies)} replies"
                + (f", and {strange} is one of them" if strange is not None else "")
                + "; it must return one finite number for each reply"
            )
        return rewards

    def judge(self, model: Any, prompts: Ids, replies: Ids) -> Sequence[float]:
        raise NotImplementedError


class RuleReward(RewardFunction):
    """A rule that scores the text of a reply, without the token that ends it."""

    def __init__(self, rule: Rule, tokenizer: Tokenizer) -> None:
        self.rule, self.tokenizer = rule, tokenizer

    def judge(self, model: Any, prompts: Ids, replies: Ids) -> Sequence[float]:
        texts = [[self.tokenizer.decode(ids) for ids in rows] for rows in (prompts, replies)]
        return self.rule(texts[0], texts[1])


class ModelReward(RewardFunction):
    """A reward model that reads the same ids. A reply that has no end token gets one, because the
    reward model learned from complete replies."""

    def __init__(self, path: str, tokenizer: Tokenizer, special: Special, form: str) -> None:
        self.path, self.special = Path(path), special
        self.scorer: Any = None  # the result of `frozen`, held so that it is loaded once
        objective = reward_options(self.path)
        if objective is None:
            raise ConfigError(
                f"{path} is no reward model; make one with 'regard align MODEL --method reward'"
            )
        check_same_tokenizer(path, tokenizer, "reward model")
        learned = objective.get("form") or "text"
        if learned != form:
            raise ConfigError(
                f"{path} learned to read each prompt as a {learned}, but here prompts are read as "
                f"a {form}; set objective.form to the same value for both"
            )
        self.context: int = getattr(model_facts(self.path).config, "context", None) or 2**31

    def judge(self, model: Any, prompts: Ids, replies: Ids) -> Sequence[float]:
        end = [self.special.end]
        self.scorer = scorer = frozen(self.path, model)
        rows = [
            np.array([*prompt, *reply, *(end if reply[-1:] != end else [])][-self.context :])
            for prompt, reply in zip(prompts, replies, strict=True)
        ]
        tokens, attention_mask = (
            torch.from_numpy(t).to(scorer.device) for t in padded(rows, end[0])
        )
        with torch.no_grad():
            scores: list[float] = wide(scorer.read("choose", scorer(tokens), attention_mask))[
                :, 0
            ].tolist()
        return scores


def reward_options(model: Path) -> dict[str, Any] | None:
    """Returns the objective of a reward model from its task.json, or None if it is no
    reward model."""
    objective: dict[str, Any] = task_facts(model).get("objective") or {}
    return objective if objective.get("name") == "reward" else None


def judge_of(name: str | None, tokenizer: Tokenizer, special: Special, form: str) -> RewardFunction:
    """Returns the reward function that a recipe's `objective.reward` names."""
    if not name:
        raise ConfigError(
            f"no reward was given; give --reward a rule ({', '.join(RULES)}) or the directory of a "
            "reward model"
        )
    if Path(name).is_dir():
        return ModelReward(name, tokenizer, special, form)
    kind, _, argument = name.partition(":")
    if kind not in RULES:
        raise UnknownName("reward", name, RULES, "(or give the directory of a reward model)")
    return RuleReward(RULES[kind](argument), tokenizer)
