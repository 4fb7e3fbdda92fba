"""Tasks as text: how they are put in words, divided, learned, and answered."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.api import load
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.core.seeding import keyed, seed_torch
from regard.data.corpus import Corpus
from regard.data.examples import (
    AnswerSpan,
    DialogueExample,
    LabeledExample,
    MultipleChoice,
    Question,
    TextPair,
)
from regard.data.prepare import PreparePlan, prepare
from regard.data.tokenizer import Tokenizer
from regard.decoding import dialogue as chat
from regard.decoding import generate
from regard.decoding.options import DecodingOptions
from regard.evaluation.text_predictor import TextPredictor
from regard.formats.directory import save
from regard.methods.finetune.run import finetune
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.lstm import LSTM, LSTMConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from regard.tasks import task as task_named
from regard.tasks.as_text import finetune_as_text, writers
from regard.tasks.converse import exchanges
from regard.tasks.corpus import divide
from regard.tasks.text_forms import LabelWords
from regard.training.recipe import Recipe, make, replaced
from regard.training.run import train
from tests.files import rows
from tests.refusals import refuses

WORDS = "red blue green black white cat dog fish bird horse".split()
EXTRA = """good bad text pair premise hypothesis question context choice1 choice2 sentence1
    sentence2 classify mnli stsb copa no answer translate English to Chinese 0 1 2 3 4 5 8 . : hello
    you there who""".split()


def foreign(text: str) -> str:
    return " ".join(word.upper() for word in text.split())


def sentences(count: int) -> list[str]:
    """All single words, then pairs of them."""
    dice = keyed(1, "sentences")
    drawn = dice.choice(100, count - len(WORDS), replace=False).tolist()
    return [*WORDS, *(f"{WORDS[i // 10]} {WORDS[i % 10]}" for i in drawn)]


SENTENCES = sentences(16)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of pairs, and a tokenizer of whole words in the directory `words`."""
    place = tmp_path_factory.mktemp("text")
    lines = [f"{text}\t{foreign(text)}\n" for text in SENTENCES]
    (place / "pairs.tsv").write_text("".join(lines))
    both = " ".join([*WORDS, *map(str.upper, WORDS), *EXTRA])
    (place / "all.tsv").write_text(f"{both}\t{both}\n" * 3)
    plan = PreparePlan((str(place / "all.tsv"),), place / "words", pairs=True, tokenizer="words",
                sentinels=2)  # fmt: skip
    prepare(plan)
    return place


def model(home: Path, family: str, **changes: Any) -> Path:
    """A small model of random weights, saved with the tokenizer."""
    place = home / "-".join([family, *(f"{k}{v}" for k, v in changes.items())])
    if place.exists():
        return place
    corpus = Corpus.open(home / "words", "train")
    special = corpus.special
    shape: dict[str, Any] = {"vocab_size": corpus.vocab_size, "width": 32, "layers": 1}
    attentive = shape | {"heads": 2, "ffn_size": 64}
    ends = {"pad_id": special.pad, "start_id": special.pad, "eos_id": special.end, "dropout": 0.0}
    makers: dict[str, Callable[[], Any]] = {
        "t5": lambda: T5(T5Config(**(attentive | ends | {"head_size": 16} | changes))),
        "transformer": lambda: Transformer(TransformerConfig(**(attentive | ends | changes))),
        "gpt": lambda: GPT(GPTConfig(**(attentive | {"context": 64, "dropout": 0.0} | changes))),
        "lstm": lambda: LSTM(LSTMConfig(**(shape | {"dropout": 0.0} | changes))),
        "transformer-xl": lambda: TransformerXL(TransformerXLConfig(**(attentive | {
            "head_size": 16, "mem_len": 32, "cutoffs": (), "ratio": 1, "clamp_len": 0,
            "same_length": False, "dropout": 0.0, "dropout_attention": 0.0} | changes))),
        "bert": lambda: Bert(BertConfig(**attentive), {"masked": 0}),
    }  # fmt: skip
    seed_torch(1, family)
    save(makers[family]().initialize(), place, corpus.tokenizer)
    return place


def recipe(place: Path, data: Path | str, task: str, steps: int = 2, **changes: Any) -> Recipe:
    base = {
        "model": str(place),
        "data": str(data),
        "examples": {"task": task},
        "batch": {"size": 8},
        "budget": {"steps": steps},
        "optimizer": {"name": "adamw", "lr": 0.005, "weight_decay": 0.0},
        "schedule": {"name": "linear", "warmup": 10.0},
        "validation": {"every": 10_000},
        "engine": {"precision": "fp32", "compile": "no"},
    }
    return make(base, changes)


def learned(run_recipe: Recipe, out: Path) -> Path:
    assert finetune(run_recipe, out, display="silent")["outcome"] == "done"
    return out


def right(answers: Sequence[Any], gold: Sequence[Any]) -> float:
    return sum(a.value == g for a, g in zip(answers, gold, strict=True)) / len(gold)


def texts_of(run: Path, split: str = "train") -> set[tuple[str, str]]:
    """The pairs that a run learns from, as text, their end tokens shown as |."""
    corpus = Corpus.open(run / "data", split)
    special = corpus.tokenizer.tokens([corpus.special.end])[0]
    documents = []
    for i in range(len(corpus.documents) - 1):
        edges = corpus.sentences_of(i)
        ids = [corpus.read(int(a), int(b)).tolist() for a, b in pairwise(edges)]
        documents.append(
            [" ".join(corpus.tokenizer.tokens(part)).replace(special, "|") for part in ids]
        )
    assert all(len(parts) == 2 for parts in documents)
    return {(a, b) for a, b in documents}


# -- in words


def test_the_forms_of_t5() -> None:
    """As in the preprocessors of T5's authors, and in Raffel et al. 2019, appendix D."""
    forms: dict[str, tuple[str, str, Any, str]] = {
        "stsb sentence1: A. sentence2: B.": (
            "similar", "stsb ", LabeledExample("A.", "B.", 3.25), "3.2"),
        "mnli hypothesis: B. premise: A.": (
            "entail", "mnli ", LabeledExample("A.", "B.", "neutral"), "neutral"),
        "classify text: A.": ("classify", "classify ", LabeledExample("A.", label="pos"), "pos"),
        "text: A. pair: B.": ("classify", "", LabeledExample("A.", "B.", "pos"), "pos"),
        "question: Who? context: A passage.": (
            "answer", "", Question("Who?", "A passage.", (AnswerSpan("A", 0),)), "A"),
        "question: Why? context: A passage.": (
            "answer", "", Question("Why?", "A passage.", impossible=True), "no answer"),
        "copa choice1: One. choice2: Two. premise: P. question: effect": (
            "choose", "copa ", MultipleChoice("P.", ("One.", "Two."), "effect", 1), "choice2"),
        "choice1: One. choice2: Two. premise: P.": (
            "choose", "", MultipleChoice("P.", ("One.", "Two."), None, 0), "choice1"),
        "translate English to German: A.": (
            "translate", "translate English to German: ", TextPair("A.", "B."), "B."),
    }  # fmt: skip
    for source, (task, prefix, example, target) in forms.items():
        assert prefix + task_named(task).source(example) == source
        assert task_named(task).target(example) == target
    assert writers(task_named("classify")) == ["transformer", "t5"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0"), (5.0, "5.0"), (3.849, "3.8"), (4.95, "5.0"), (-0.01, "0.0")]
)
def test_scores_are_rounded_to_fifths(value: float, text: str) -> None:
    assert task_named("similar").target(LabeledExample("a", "b", value)) == text


def meant(task: str, example: Any, word: str | None, text: str, labels: Any = ()) -> Any:
    return task_named(task).value(example, word, text, labels)


def test_what_is_written_means_something_or_stays_as_it_is() -> None:
    two = MultipleChoice("P", ("One", "Two"))
    assert meant("choose", two, "choice2", "choice2") == 1
    assert meant("choose", two, "choice3", "choice3") == "choice3"
    assert meant("choose", two, None, "nonsense") == "nonsense"
    assert meant("similar", LabeledExample("a", "b"), None, "3. 8") == 3.8
    assert math.isnan(meant("similar", LabeledExample("a", "b"), None, "inf"))
    assert math.isnan(meant("similar", LabeledExample("a", "b"), None, "many"))
    assert meant("similar", LabeledExample("a", "b"), "1", "1", ["0", "1"]) == "1"
    assert meant("answer", Question("q", "p"), "no answer", "no answer") == ""
    assert meant("classify", LabeledExample("t"), None, "b", ["a"]) == "b"


@pytest.mark.parametrize(
    "example",
    [LabeledExample("a"), Question("q", "p"), MultipleChoice("p", ("a", "b")), TextPair("a")],
)
def test_an_example_without_target_is_refused(example: Any) -> None:
    with refuses(InputError, "learned"):
        task_named("classify").target(example)


def test_words_that_a_tokenizer_makes_equal_are_refused(home: Path) -> None:
    tokenizer = Tokenizer.open(home / "words")
    assert tokenizer is not None
    words = LabelWords(["good", "no answer"], tokenizer)
    assert words.find(tokenizer.encode("good", special=False), "?") == "good"
    assert words.find([], " no  answer") == "no answer"
    assert words.find([], "noanswers") is None
    with refuses(InputError, "'quux'", "'zork'"):
        LabelWords(["good", "quux", "zork"], tokenizer)


# -- divided

SIDE = st.integers(0, 12).map(str)


@given(
    st.lists(st.builds(TextPair, SIDE, SIDE), min_size=2), st.sampled_from([0.1, 0.3]), st.data()
)
def test_no_sentence_of_either_side_is_shared(
    pairs: list[TextPair], share: float, data: Any
) -> None:
    try:
        inside = divide(pairs, share, 0, 0)
    except InputError:
        assert not disjoint(pairs)
        return
    apart(pairs, inside)
    assert any(inside) and not all(inside)
    mixed = data.draw(st.permutations(pairs))
    chosen = {pair for pair, valid in zip(pairs, inside, strict=True) if valid}
    again = {p for p, valid in zip(mixed, divide(mixed, share, 0, 0), strict=True) if valid}
    assert again == chosen


def apart(pairs: Sequence[TextPair], inside: Sequence[bool]) -> None:
    for side in ("source", "target"):
        sides: list[set[str]] = [set(), set()]
        for pair, valid in zip(pairs, inside, strict=True):
            sides[valid].add(getattr(pair, side))
        assert not sides[0] & sides[1]


def disjoint(pairs: Sequence[TextPair]) -> bool:
    """Is there more than one group? Grown from the first pair until nothing joins."""
    group, grown = {pairs[0]}, True
    while grown:
        joined = {p for p in pairs for q in group if p.source == q.source or p.target == q.target}
        grown, group = joined != group, joined
    return len(group) < len(set(pairs))


def test_a_share_is_kept_and_parts_are_whole() -> None:
    pairs = [TextPair(f"s{i // 2}", f"t{i}") for i in range(200)]
    assert sum(divide(pairs, 0.1, 0, 0)) == 20
    assert not any(divide(pairs, 0.0, 0, 0))
    parts = [divide(pairs, 0.1, 3, fold) for fold in range(3)]
    assert [sum(valid) for valid in zip(*parts, strict=True)] == [1] * 200
    for part in parts:
        apart(pairs, part)
        assert 60 <= sum(part) <= 70
    with refuses(InputError, "5 pairs"):
        divide([TextPair("a", str(i)) for i in range(5)], 0.1, 0, 0)
    with refuses(ConfigError, "1 groups"):
        divide([TextPair("a", str(i)) for i in range(5)], 0.1, 2, 0)


# -- learned

RATES = {"t5": 0.005, "transformer": 0.005, "gpt": 0.01, "transformer-xl": 0.006, "lstm": 0.02}


@pytest.mark.parametrize("family", RATES)
def test_a_small_model_learns_to_translate(family: str, home: Path, tmp_path: Path) -> None:
    run_recipe = recipe(model(home, family), home / "pairs.tsv", "translate", 300)
    run_recipe = replaced(run_recipe, examples={"prefix": ""}, optimizer={"lr": RATES[family]})
    run = learned(run_recipe, tmp_path / "run")
    ask = TextPredictor(load(run))
    assert (ask.task, ask.labels) == ("translate", [])
    pairs = [(a.removesuffix(" |"), b.removesuffix(" |")) for a, b in texts_of(run)]
    predictions = ask(TextPair(source) for source, _ in pairs)
    assert right(predictions, [target for _, target in pairs]) > 0.9
    beams = TextPredictor(load(run), num_beams=4, length_penalty=0.6)
    assert right(beams([TextPair(source) for source, _ in pairs]), [t for _, t in pairs]) > 0.9
    if family in ("t5", "transformer"):  # which 'regard generate' gives the same source
        sources = [source for source, _ in pairs]
        generated = generate(load(run), sources, max_new_tokens=ask.options.max_new_tokens)
        assert [one.text.strip() for (one,) in generated if one.text] == [
            f.value for f in predictions
        ]
    mixed = list(ask.stream(TextPair(source) for source, _ in reversed(pairs)))
    assert [each.value for each in mixed] == [each.value for each in reversed(predictions)]
    apart([TextPair(*both) for both in (*texts_of(run), *texts_of(run, "valid"))],
          [False] * len(texts_of(run)) + [True] * len(texts_of(run, "valid")))  # fmt: skip


def test_a_run_of_pairs_translates_and_does_no_other_task(home: Path, tmp_path: Path) -> None:
    run = learned(
        recipe(model(home, "transformer"), home / "pairs.tsv", "translate"), tmp_path / "run"
    )
    for name in ("task.json", "manifest.json"):  # as 'regard train' leaves it
        (run / name).unlink(missing_ok=True)
    loaded = load(run)
    assert TextPredictor(loaded).task == "translate"
    assert TextPredictor(loaded, task="summarize").task == "summarize"
    for task in ("classify", "tag", "answer", "choose"):
        with refuses(ConfigError, task):
            TextPredictor(loaded, task=task)


@pytest.mark.parametrize("family", ["t5", "transformer"])
def test_classes_are_written(family: str, home: Path, tmp_path: Path) -> None:
    examples = [{"text": w, "label": "good" if w in WORDS[:5] else "bad"} for w in WORDS]
    file = tmp_path / "data.jsonl"
    file.write_text(rows(*examples))
    run_recipe = recipe(model(home, family), file, "classify", 80, examples={"valid_fraction": 0.0})
    run = learned(run_recipe, tmp_path / "run")
    facts = json.loads((run / "task.json").read_text())
    prefix = "classify " if family == "t5" else ""
    assert facts == {
        "task": "classify", "objective": {"name": "pairs"}, "labels": ["bad", "good"],
        "length": 512 if family == "t5" else 256, "prefix": prefix, "form": "text", "tokens": 2,
    }  # fmt: skip
    assert (f"{prefix}text : red |", "good |") in texts_of(run)
    ask = TextPredictor(load(run))
    predictions = ask([LabeledExample(str(e["text"])) for e in examples])
    assert [each.value for each in predictions] == [e["label"] for e in examples]
    assert all(0.0 < each.score <= 1.0 for each in predictions if each.score is not None)
    assert predictions[0].score is not None
    smoothing = 0.1 if family == "transformer" else 0.0
    from regard.training import recipe as recipes

    stored = recipes.make(recipes.read(run / "recipe.toml"))
    assert stored.objective.get("smoothing", 0.1) == smoothing
    assert stored.examples.labels == ["bad", "good"]


TASK_FILES: dict[str, tuple[list[dict[str, Any]], tuple[str, str]]] = {
    "entail": (
        [{"premise": "red cat", "hypothesis": "cat", "label": "good"},
         {"premise": "red dog", "hypothesis": "cat", "label": "bad"}],
        ("mnli hypothesis : cat premise : red cat |", "good |"),
    ),
    "similar": (
        [{"text": "red cat", "pair": "cat", "label": 3.85},
         {"text": "red dog", "pair": "cat", "label": 1.0}],
        ("stsb sentence1 : red cat sentence2 : cat |", "3 . 8 |"),
    ),
    "answer": (
        [{"question": "who", "passage": "red cat", "answers": [{"text": "cat", "start": 4}]},
         {"question": "who", "passage": "no", "answers": []}],
        ("question : who context : no |", "no answer |"),
    ),
    "choose": (
        [{"premise": "red", "choices": ["cat", "dog"], "label": 1},
         {"premise": "blue", "choices": ["cat", "dog"], "label": 0}],
        ("copa choice1 : cat choice2 : dog premise : red |", "choice2 |"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASK_FILES)
def test_every_task_is_learned_as_text(task: str, home: Path, tmp_path: Path) -> None:
    examples, wanted = TASK_FILES[task]
    (tmp_path / "data.jsonl").write_text(rows(*examples))
    run_recipe = recipe(model(home, "t5"), tmp_path / "data.jsonl", task, 60)
    run_recipe = replaced(run_recipe, examples={"valid_fraction": 0.0})
    run = learned(run_recipe, tmp_path / "run")
    assert wanted in texts_of(run)
    from regard.tasks import read

    gold = {
        "entail": ["good", "bad"], "similar": [3.8, 1.0], "answer": ["cat", ""], "choose": [1, 0]
    }  # fmt: skip
    questions = read(tmp_path / "data.jsonl", task)
    assert [each.value for each in TextPredictor(load(run))(questions)] == gold[task]


def test_a_run_goes_on_without_its_file(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_bytes((home / "pairs.tsv").read_bytes())
    run_recipe = recipe(model(home, "gpt"), data, "translate", 4)
    run = learned(run_recipe, tmp_path / "run")
    assert run_recipe.data == str(data), "the recipe that was given is left as it was"
    data.unlink()
    more = finetune(make({"budget": {"steps": 7}}), run, resume=True, display="silent")
    assert more["progress"]["step"] == 7
    assert TextPredictor(load(run)).task == "translate"


def test_a_run_that_failed_leaves_its_place_free(home: Path, tmp_path: Path) -> None:
    run_recipe = recipe(
        model(home, "gpt"), home / "pairs.tsv", "translate", optimizer={"name": "none"}
    )
    with refuses(UnknownName, "'none'"):
        finetune(run_recipe, tmp_path / "run", display="silent")
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"data", "task.json"}
    learned(recipe(model(home, "gpt"), home / "pairs.tsv", "translate"), tmp_path / "run")
    with refuses(ConfigError, tmp_path / "run", "exists"):
        finetune(run_recipe, tmp_path / "run", display="silent")


def test_prepared_text_of_others_is_not_touched(home: Path, tmp_path: Path) -> None:
    plan = PreparePlan((str(home / "pairs.tsv"),), tmp_path / "run" / "data", pairs=True)
    prepare(plan)
    before = (tmp_path / "run" / "data" / "data.json").read_bytes()
    run_recipe = recipe(model(home, "gpt"), home / "pairs.tsv", "translate")
    with refuses(ConfigError, tmp_path / "run", "prepared text"):
        finetune(run_recipe, tmp_path / "run", display="silent")
    (tmp_path / "run" / "task.json").write_text("{}")
    with refuses(ConfigError, tmp_path / "run", "prepared text"):
        finetune(run_recipe, tmp_path / "run", display="silent")
    assert (tmp_path / "run" / "data" / "data.json").read_bytes() == before


def test_a_file_of_its_own_validates(home: Path, tmp_path: Path) -> None:
    (tmp_path / "valid.en").write_text("red cat\nblue dog\n")
    (tmp_path / "valid.zz").write_text("RED CAT\nBLUE DOG\n")
    run_recipe = recipe(model(home, "t5"), home / "pairs.tsv", "translate")
    valid = f"{tmp_path / 'valid.en'},{tmp_path / 'valid.zz'}"
    run_recipe = replaced(run_recipe, examples={"valid": valid})
    run = learned(run_recipe, tmp_path / "run")
    start = "translate :"
    assert texts_of(run, "valid") == {
        (f"{start} red cat |", "RED CAT |"), (f"{start} blue dog |", "BLUE DOG |")
    }  # fmt: skip
    assert len(texts_of(run)) == len(SENTENCES)


# -- dialogue

TALKS = [
    {"turns": ["hello", "who", "you there", "no answer", "good"]},
    {"turns": ["red cat", "blue dog"]},
    {"turns": [{"role": "system", "content": "good"}, {"role": "user", "content": "hello there"},
               {"role": "assistant", "content": "who"}]},
]  # fmt: skip


@pytest.mark.parametrize("family", ["gpt", "t5"])
def test_a_dialogue_is_learned_as_chat_shows_it(family: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "talks.jsonl").write_text(rows(*TALKS))
    run_recipe = recipe(model(home, family), tmp_path / "talks.jsonl", "converse", 80)
    run_recipe = replaced(run_recipe, examples={"valid_fraction": 0.0})
    run = learned(run_recipe, tmp_path / "run")
    loaded, wanted = load(run), set()
    ask = TextPredictor(loaded)
    for turns in (["hello", "who", "you there", "no answer", "good"], ["red cat", "blue dog"]):
        for last in range(1, len(turns)):
            talk = chat.Conversation(loaded, DecodingOptions(max_new_tokens=8))
            talk.turns = [{"role": "user", "content": turn} for turn in turns[:last]]
            shown = ask.tokenizer.tokens(talk.prompt())
            end = ask.tokenizer.tokens(ask.decoder.ends)[0]
            wanted.add((" ".join(shown).replace(end, "|"), f"{turns[last]} |"))
            talk.turns.pop()
            reply = "".join(talk.say(turns[last - 1])).strip()
            predicted = ask([DialogueExample((*turns[:last], ""))])[0].value
            assert reply == predicted == turns[last]
    assert len(wanted) == 5
    system = ("good | hello there |", "who |")
    assert texts_of(run) == wanted | {system}


def test_each_reply_is_an_exchange() -> None:
    talk = DialogueExample(("a", "b", "c"), None, id="x")
    assert [each.turns for each in exchanges(talk)] == [("a", "b"), ("a", "b", "c")]
    talk = DialogueExample(("be nice", "a", "b"), ("system", "user", "assistant"))
    assert [each.turns for each in exchanges(talk)] == [("be nice", "a", "b")]
    assert not list(exchanges(DialogueExample(("alone",))))


def test_old_turns_are_forgotten_first(home: Path, tmp_path: Path) -> None:
    turns = ["red red red red", "blue blue blue", "green green green", "black"]
    (tmp_path / "talks.jsonl").write_text(rows({"turns": turns}))
    run_recipe = recipe(model(home, "gpt"), tmp_path / "talks.jsonl", "converse")
    run_recipe = replaced(run_recipe, batch={"seq_len": 10}, examples={"valid_fraction": 0.0})
    run = learned(run_recipe, tmp_path / "run")
    assert ("green green green |", "black |") in texts_of(run)
    assert ("red red red red |", "blue blue blue |") in texts_of(run)
    ask = TextPredictor(load(run))
    assert ask.options.max_new_tokens == 4 and ask.room == 6
    ask([DialogueExample((*turns, ""))])
    assert ask.cut == 1 and "1 dialogues have more than 6 tokens before the reply" in ask.notes[0]
    with refuses(InputError, "said"):
        ask([DialogueExample(("alone",))])


# -- from nothing, and from others


def test_a_translator_from_nothing(home: Path, tmp_path: Path) -> None:
    source = home / "pairs.tsv"
    prepare(PreparePlan((str(source),), tmp_path / "data", pairs=True, tokenizer="words"))
    shape = {"layers": 1, "width": 32, "heads": 2, "ffn_size": 64, "dropout": 0.0}
    run_recipe = recipe(Path("transformer"), tmp_path / "data", "", 300, shape=shape)
    run_recipe = replaced(run_recipe, batch={"seq_len": 16})
    train(run_recipe, tmp_path / "run", display="silent")
    ask = TextPredictor(load(tmp_path / "run"), max_new_tokens=6)
    assert ask.task == "translate" and not (tmp_path / "run" / "task.json").exists()
    sources = [source.removesuffix(" |") for source, _ in texts_of(tmp_path)]
    predictions = ask([TextPair(text) for text in sources])
    assert right(predictions, [foreign(text) for text in sources]) > 0.9


def test_published_models_are_told_what_to_do(home: Path) -> None:
    assert TextPredictor(load(model(home, "transformer"))).task == "translate"
    ask = TextPredictor(load(model(home, "t5")), task="summarize", max_new_tokens=3)
    assert ask.scribe.prefix == "summarize: "
    assert isinstance(ask([TextPair("red cat")])[0].value, str)
    own = TextPredictor(
        load(model(home, "t5")), task="translate", prefix="to French: ", max_new_tokens=3
    )
    assert own.scribe.source(TextPair("red")) == "to French: red"
    with refuses(ConfigError, "prefix='translate English to German: '"):
        TextPredictor(load(model(home, "t5")), task="translate")
    for family, task in (("gpt", ""), ("gpt", "translate"), ("t5", ""), ("t5", "tag"),
                         ("transformer", "classify")):  # fmt: skip
        with refuses(ConfigError, "not learned"):
            TextPredictor(load(model(home, family)), task=task)


def test_no_more_are_written_at_a_time_than_asked_for(home: Path, monkeypatch: Any) -> None:
    examples = [TextPair(text) for text in SENTENCES]
    whole = TextPredictor(load(model(home, "transformer")), max_new_tokens=3)
    few = TextPredictor(load(model(home, "transformer")), max_new_tokens=3, batch_size=5)
    sizes: list[int] = []

    def counted(prompts: Any, numbers: Any, run: Any = few.decoder.run) -> Any:
        sizes.append(len(prompts))
        return run(prompts, numbers)

    monkeypatch.setattr(few.decoder, "run", counted)
    assert [each.value for each in few(examples)] == [each.value for each in whole(examples)]
    assert max(sizes) == 5 and sum(sizes) == len(examples)


# -- bad input


PAIRS = {"pairs.tsv": "red\tRED\nblue\tBLUE\n"}
BLANK = rows({"source": "red", "target": "RED"}, {"source": "blue", "target": " "})
ALIKE = rows({"text": "red", "label": "quux"}, {"text": "blue", "label": "zork"})


@pytest.mark.parametrize(
    ("family", "task", "changes", "files", "error", "named"),
    [
        ("t5", "tag", {}, PAIRS, ConfigError, "tag, bert"),
        ("bert", "translate", {}, PAIRS, ConfigError, "bert, translate, transformer, t5"),
        ("gpt", "classify", {}, PAIRS, ConfigError, "gpt, classify, transformer, t5"),
        ("t5", "sing", {}, PAIRS, UnknownName, "'sing'"),
        ("gpt", "converse", {"examples": {"prefix": "bot: "}}, PAIRS, ConfigError, "prefix, chat"),
        ("t5", "translate", {"objective": {"name": "span"}}, PAIRS, ConfigError,
         "objective.name is 'span'"),
        ("t5", "translate", {}, {"data.jsonl": BLANK}, InputError, "data.jsonl:2"),
        ("t5", "translate", {}, {"data.jsonl": rows({"source": "red"}, {"source": "blue"})},
         InputError, "data.jsonl:, label, target"),
        ("t5", "translate", {}, {"a.en": "red\nblue\n", "a.zz": "RED\n"}, InputError,
         "a.en: lines: 2, 1 in, a.zz"),
        ("gpt", "converse", {}, {"data.jsonl": rows({"turns": ["hello"]}, {"turns": ["who"]})},
         InputError, "turn"),
        ("t5", "classify", {"examples": {"valid_fraction": 0.0}}, {"data.jsonl": ALIKE},
         InputError, "'quux', 'zork', tokens"),
    ],
)  # fmt: skip
def test_refusals(
    family: str,
    task: str,
    changes: dict[str, Any],
    files: dict[str, str],
    error: type[Exception],
    named: str,
    home: Path,
    tmp_path: Path,
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    data = ",".join(str(tmp_path / name) for name in files)
    with refuses(error, *named.split(", ")):
        finetune_as_text(
            recipe(model(home, family), data, task, **changes), tmp_path / "run", display="silent"
        )
    assert not (tmp_path / "run" / "data").exists()


def test_sources_that_are_too_long_are_cut_and_counted(home: Path, tmp_path: Path) -> None:
    run_recipe = recipe(model(home, "gpt"), home / "pairs.tsv", "translate")
    run = learned(run_recipe, tmp_path / "run")
    ask = TextPredictor(load(run), max_new_tokens=4)
    assert ask.notes == []
    ask([TextPair(" ".join(WORDS * 20)), TextPair("red")])
    assert ask.cut == 1 and ask.notes == [f"1 texts have more than {ask.room} tokens and were cut"]
    (tmp_path / "long.tsv").write_text(f"red\t{' '.join(WORDS)}\nblue\tBLUE\n")
    short = recipe(
        model(home, "gpt"), tmp_path / "long.tsv", "translate", examples={"valid_fraction": 0.0}
    )
    short = replaced(short, batch={"seq_len": 6})
    assert TextPredictor(load(learned(short, tmp_path / "short"))).options.max_new_tokens == 6
    with refuses(UnknownName, "beam"):
        TextPredictor(load(run), beam=4)
    with refuses(ConfigError, "translate", "summarize"):
        TextPredictor(load(run), task="summarize")
