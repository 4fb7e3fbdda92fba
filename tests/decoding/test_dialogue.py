"""Turns as prompts: templates, the plain format, and a context that ends."""

from __future__ import annotations

import json
from typing import Any

import torch

from regard.api import LoadedModel
from regard.core.errors import InputError
from regard.data.tokenizer import Tokenizer
from regard.decoding.dialogue import Conversation
from regard.decoding.options import DecodingOptions
from regard.decoding.templates import template_of
from regard.models.t5 import T5
from tests.decoding.small import talking, tokenizer
from tests.laws.zoo import T5_SMALL, Specimen, everything
from tests.refusals import refuses

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
SHORT_ANSWERS = DecodingOptions(max_new_tokens=6)


def with_template(template: Any, name: str = "tokenizer_config.json") -> LoadedModel:
    loaded = talking()
    assert loaded.tokenizer is not None
    files = dict(loaded.tokenizer.files)
    if name.endswith(".json"):
        files[name] = json.dumps({"chat_template": template, **json.loads(files[name])}).encode()
    else:
        files[name] = template.encode()
    return LoadedModel(loaded.model, Tokenizer(loaded.tokenizer.fast, files))


def reply(dialogue: Conversation, text: str) -> str:
    return "".join(dialogue.say(text))


def test_the_plain_format() -> None:
    dialogue = Conversation(talking(), SHORT_ANSWERS)
    words = dialogue.words
    end = dialogue.prompts.ends()[0]
    first = reply(dialogue, "The cat")
    dialogue.turns.append({"role": "user", "content": "sat"})
    turns = [words.encode(t, special=False) for t in ("The cat", first.strip(), "sat")]
    assert dialogue.prompt() == [i for turn in turns for i in [*turn, end]]
    dialogue.reset()
    assert dialogue.turns == []


def test_a_template_marks_the_turns() -> None:
    for loaded in (
        with_template(TEMPLATE),
        with_template(
            [{"name": "tool", "template": "no"}, {"name": "default", "template": TEMPLATE}]
        ),
        with_template(TEMPLATE, "chat_template.jinja"),
    ):
        dialogue = Conversation(loaded, SHORT_ANSWERS)
        dialogue.turns = [
            {"role": "system", "content": "Be nice."}, {"role": "user", "content": " Hello "}
        ]  # fmt: skip
        expected = "system: Be nice.<|endoftext|>user: Hello<|endoftext|>assistant:"
        assert dialogue.prompt() == dialogue.words.encode(expected, special=False)
        assert Conversation(loaded, SHORT_ANSWERS, plain=True).template is None
        dialogue.reset()
        assert [turn["role"] for turn in dialogue.turns] == ["system"]
    assert template_of(tokenizer("bytes-bpe")) is None


def test_old_turns_are_forgotten() -> None:
    dialogue = Conversation(talking(context=40), DecodingOptions(max_new_tokens=10))
    for word in ("The cat sat", "on the mat", "It's not", "the dog"):
        reply(dialogue, word)
        assert len(dialogue.prompt()) <= 40
    assert len(dialogue.turns) == 8
    dialogue.turns.append({"role": "user", "content": "dog"})
    ids = dialogue.prompt()
    assert len(ids) <= 30 and ids[-1] == dialogue.prompts.ends()[0]
    assert ids in [dialogue.encode(dialogue.turns[-count:]) for count in (1, 3, 5)]
    three = [
        {"role": role, "content": "cat " * 16} for role in ("user", "assistant", "user")
    ]  # fmt: skip
    assert len(dialogue.encode(three[1:])) > 30
    dialogue.turns = three
    assert dialogue.prompt() == dialogue.encode(three[2:])
    long = {"role": "user", "content": "The cat sat on the mat, " * 9}
    dialogue.turns.append(long)
    whole = dialogue.encode([long])
    assert len(whole) > 30 and dialogue.prompt() == whole[-30:]
    strict = Conversation(with_template(TEMPLATE), DecodingOptions(max_new_tokens=40), turns=[long])
    with refuses(InputError, "79 tokens", "32"):
        strict.prompt()


def test_an_encoder_is_shown_the_newest_turn() -> None:
    words = tokenizer("unigram")
    end = words.ready.token_to_id("</s>")
    config = T5_SMALL.replace(vocab_size=len(words), eos_id=end)
    loaded = LoadedModel(Specimen("t5", T5, config, everything).fresh(torch.float64), words)
    dialogue = Conversation(loaded, SHORT_ANSWERS)
    reply(dialogue, "The cat")
    dialogue.turns.append({"role": "user", "content": "the dog"})
    newest = [*words.encode("the dog", special=False), end]
    assert dialogue.prompt() == newest
    dialogue.memory = 2
    assert dialogue.prompt()[: -len(newest)][-1] == end


def test_an_answer_broken_off_is_not_remembered() -> None:
    dialogue = Conversation(talking(), DecodingOptions(max_new_tokens=30, temperature=1.5))
    steps = dialogue.say("The cat")
    next(steps)
    steps.close()
    assert dialogue.turns == []


def test_draws_differ_from_turn_to_turn_and_are_repeatable() -> None:
    def talk(seed: int) -> list[str]:
        dialogue = Conversation(
            talking(), DecodingOptions(max_new_tokens=12, temperature=2.0, seed=seed)
        )
        return [reply(dialogue, "The cat") for _ in range(2)]

    assert talk(1) == talk(1) != talk(2)
