"""What people guess: every wrong word is answered with what to write instead."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import transformers

import regard
from regard.cli.guess import unknown_option
from regard.cli.main import main, program
from regard.core.errors import ConfigError, UnknownName, counted
from regard.core.foreign import ours, plain
from regard.core.foreign_options import ARGUMENTS, INSTEAD, KEYS, OBJECTIVES_WITH
from regard.models import FAMILIES, sizes
from regard.objectives import OBJECTIVES, objective
from regard.tasks import TASKS, objectives
from regard.training import recipe as recipes
from regard.training.data import options_of
from regard.training.keys import matching
from regard.training.progress import peak_share
from tests.cli.test_options import EVERY, refused
from tests.refusals import refuses

NANOGPT = """out_dir eval_interval log_interval eval_iters eval_only always_save_checkpoint
init_from wandb_log wandb_project wandb_run_name dataset gradient_accumulation_steps batch_size
block_size n_layer n_head n_embd dropout bias learning_rate max_iters weight_decay beta1 beta2
grad_clip decay_lr warmup_iters lr_decay_iters min_lr backend device dtype compile"""
FAIRSEQ = """arch task criterion optimizer adam-betas adam-eps clip-norm lr lr-scheduler
warmup-updates warmup-init-lr dropout attention-dropout activation-dropout weight-decay
label-smoothing max-tokens batch-size update-freq max-update max-epoch save-dir save-interval
save-interval-updates keep-last-epochs keep-interval-updates no-epoch-checkpoints
best-checkpoint-metric maximize-best-checkpoint-metric eval-bleu eval-bleu-args patience fp16
memory-efficient-fp16 seed share-all-embeddings share-decoder-input-output-embed source-lang
target-lang restore-file finetune-from-model reset-optimizer tensorboard-logdir log-format
log-interval num-workers ddp-backend distributed-world-size encoder-layers decoder-layers
encoder-embed-dim encoder-ffn-embed-dim encoder-attention-heads decoder-attention-heads
encoder-normalize-before tokens-per-sample sample-break-mode mask-prob train-subset valid-subset
skip-invalid-size-inputs-valid-test required-batch-size-multiple max-source-positions
max-target-positions user-dir bpe validate-interval validate-interval-updates"""
PROGRAMS = """model_name_or_path config_name tokenizer_name cache_dir use_fast_tokenizer
model_revision token trust_remote_code torch_dtype low_cpu_mem_usage dataset_name
dataset_config_name train_file validation_file test_file max_train_samples max_eval_samples
max_predict_samples streaming block_size overwrite_cache validation_split_percentage
preprocessing_num_workers keep_linebreaks task_name max_seq_length pad_to_max_length
text_column_name label_column_name label_all_tokens return_entity_level_metrics source_lang
target_lang max_source_length max_target_length val_max_target_length num_beams
ignore_pad_token_for_loss source_prefix forced_bos_token ignore_mismatched_sizes mlm_probability
line_by_line model_type config_overrides n_best_size doc_stride null_score_diff_threshold
version_2_with_negative max_answer_length overwrite_output_dir do_lower_case text_column
summary_column num_labels mlm vocab_size"""
TRAINING = [f.name for f in dataclasses.fields(transformers.Seq2SeqTrainingArguments)]
LIBRARIES = {
    "train": [*NANOGPT.split(), *FAIRSEQ.split(), *TRAINING],
    "finetune": [*PROGRAMS.split(), *TRAINING],
}


def known_to(command: str) -> list[str]:
    names = [n for p in EVERY[command].params for n in (*p.opts, *p.secondary_opts)]
    return [name for name in names if name.startswith("-")]


@pytest.mark.parametrize("command", LIBRARIES)
def test_every_usual_option_of_others_is_answered(command: str) -> None:
    """By an option of this command, a key, its place among the words, or what to do instead."""
    known, arguments = known_to(command), EVERY[command].params
    usage = [str(one.metavar) for one in arguments if isinstance(one, click.Argument)]
    for word in LIBRARIES[command]:
        if f"--{word.replace('_', '-')}" in known:
            continue
        answer = str(unknown_option(f"--{word}", known, usage, command))
        assert "is near" not in answer, answer
        if "did you mean '--" in answer:
            assert answer.split("'")[3] in known, answer


def test_a_word_has_one_answer() -> None:
    for word in [*KEYS, *ARGUMENTS, *(word.rpartition(":")[2] for word in INSTEAD)]:
        assert word == plain(word)
    assert not KEYS.keys() & INSTEAD.keys()


def test_keys_that_some_objectives_have_are_theirs() -> None:
    """What an answer says of objectives is what they say of themselves."""
    classes = {name: objective(name) for name in OBJECTIVES} | objectives()
    configs = [card.config.__dataclass_fields__ for card in FAMILIES.values()]
    for key in KEYS.values():
        table, _, name = key.partition("=")[0].partition(".")
        assert table != "objective" or name in OBJECTIVES_WITH, key
        assert table != "shape" or any(name in config for config in configs), key
    for key, names in OBJECTIVES_WITH.items():
        having = [n for n, kind in classes.items() if key in kind.Options.__dataclass_fields__]
        assert having == names.split(", "), key


ANSWERS = [
    ("train gpt data --vocab_size 3", "regard prepare"),
    ("train gpt data --mlm", "--objective masked"),
    ("train gpt data --model_name_or_path x", "MODEL", "regard train MODEL DATA"),
    ("train gpt data --train_file x", "DATA", "regard train MODEL DATA"),
    ("train gpt data --label_smoothing 0.1", "objective.smoothing=X", "pairs"),
    ("train gpt data --num-beams 3", "'regard generate'"),
    ("train gpt data -lr 3", "--lr"),
    ("finetune m --num_labels 3", "read from the data"),
    ("finetune m --logging_steps 3", "metrics.jsonl"),
    ("finetune m --train_file x", "--data"),
    ("generate m --prompt x", "PROMPT", "regard generate MODEL [PROMPT]"),
    ("generate m --start x", "PROMPT"),
    ("predict m text --out x", "--jsonl", "> FILE"),
    ("prepare text --overwrite_output_dir", "--force"),
    ("prepare text --tokenizer_name x", "--tokenizer KIND"),
    ("prepare text --validation_split_percentage 5", "--valid-fraction"),
    ("evaluate m d --max_eval_samples 3", "--limit"),
    ("evaluate m d --metric f1", "metrics"),
    ("finetune m --dev x", "--valid"),
    ("finetune m --train x", "--data"),
    ("compare text --max_steps 3", "--budget"),
    ("predict m text --early_stopping true", "--beam-stopping"),
    ("train gpt data --out x model.n_layer=3", "shape.layers=N"),
    ("train gpt data --out x n_positions=3", "shape.context=N"),
    ("train gpt data --out x out_dir=3", "--out"),
    ("train gpt data --out x init_from=3", "MODEL"),
    ("train gpt data --out x rate=3", "optimizer.lr"),
    ("train gpt data --out x evry=3", "regard recipes --keys"),
]


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case[0])
def test_a_guess_is_answered(case: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    words, *parts = case
    answer = refused(capsys, *words.split())
    assert [part for part in parts if part not in answer] == [], answer


def test_all_wrong_options_and_keys_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    answer = refused(
        capsys, "train", "gpt", "data", "--learning_rate", "1", "--n_layer", "2", "--xy"
    )
    assert [part for part in ("--lr", "shape.layers=N", "--xy") if part not in answer] == []
    answer = refused(capsys, "train", "gpt", "data", "--out", "x", "beta1=1", "block_size=2")
    assert [part for part in ("optimizer.betas", "batch.seq_len") if part not in answer] == []
    with refuses(UnknownName, "'lr'", "'steps'"):
        regard.train("gpt", "data", learning_rate=1, max_iters=2)


def test_underscores_are_dashes() -> None:
    """Where the option is ours; a value is left as it is, and so is what follows --."""
    context = click.Context(program)
    train: Any = program.get_command(context, "train")
    words = ["gpt", "a_b", "--batch_size", "8", "--grad_clip=0.5", "--optimizer", "--a_b"]
    params = train.make_context("train", words, parent=context).params
    assert params["batch_size"] == 8 and params["grad_clip"] == 0.5 and params["data"] == "a_b"
    assert params["optimizer"] == "--a_b"
    generate: Any = program.get_command(context, "generate")
    params = generate.make_context("generate", ["m", "--", "--top_k"], parent=context).params
    assert params["prompts"] == ("--top_k",)


TASK_WORDS = {
    "ner": "tag", "token-classification": "tag", "text-classification": "classify",
    "sentiment-analysis": "classify", "question-answering": "answer", "translation": "translate",
    "summarization": "summarize", "multiple-choice": "choose", "sts": "similar", "nli": "entail",
}  # fmt: skip


@pytest.mark.parametrize("word", TASK_WORDS)
def test_tasks_of_pipelines(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    task = TASK_WORDS[word]
    assert f"did you mean {task!r}" in refused(capsys, "check", __file__, "--task", word)
    if task != "summarize":
        answer = refused(capsys, "augment", __file__, "--out", "x", "--task", word)
        assert f"did you mean {task!r}" in answer
    assert ours(word, TASKS) == task
    commands = program.list_commands(click.Context(program))
    assert (ours("fill-mask", commands), ours("text-generation", commands)) == ("fill", "generate")


@pytest.mark.parametrize(
    ("word", "name"), [("mlm", "masked"), ("clm", "causal"), ("nsp", "sentences")]
)
def test_objectives_of_others(word: str, name: str) -> None:
    with refuses(UnknownName, repr(name)):
        objective(word)


@pytest.mark.parametrize(("word", "family"), [("marian", "transformer"), ("mt5", "t5")])
def test_models_of_others(word: str, family: str) -> None:
    with refuses(UnknownName, word, repr(family)):
        regard.create(word)
    assert family in FAMILIES and word not in sizes()


# -- words in another order, files in the place of texts


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every kind, a prepared directory and a model directory without their content."""
    monkeypatch.chdir(tmp_path)
    for name, marker in (("data", "data.json"), ("model", "config.json")):
        Path(name).mkdir()
        Path(name, marker).write_text("{}")
    Path("rows.jsonl").write_text('{"text": "a film", "label": "good"}\n')
    Path("book.txt").write_text("Once upon a time.\n" * 9)
    Path("table.txt").write_text("a cat\teine Katze\na dog\tein Hund\n\na bird\tein Vogel\n")
    Path("two.tsv").write_text("a cat\teine Katze\na dog\tein Hund\n")
    return tmp_path


REFUSED = [
    ("train data gpt --out x", "data", "regard train gpt data"),
    ("train data model --out x", "regard train model data"),
    ("train book.txt gpt --out x", "regard train gpt book.txt"),
    ("finetune rows.jsonl --task tag --out x", "regard finetune MODEL --data rows.jsonl"),
    ("distill rows.jsonl --student layers=1 --out x", "--data rows.jsonl"),
    ("align rows.jsonl --out x", "--data rows.jsonl"),
    ("evaluate rows.jsonl model", "regard evaluate model rows.jsonl"),
    ("evaluate data model", "regard evaluate model data"),
    ("generate book.txt", "MODEL", "book.txt"),
    ("predict book.txt", "--file book.txt"),
    ("predict model book.txt", "--file book.txt"),
    ("embed model book.txt", "--file book.txt"),
    ("generate model book.txt", "--file book.txt"),
    ("prepare table.txt --out x", "--pairs", "--format text"),
    ("prepare two.tsv --out x", "--pairs"),
    ("augment rows.jsonl --out x.jsonl --methods swap", "--task", "classify"),
    ("finetune some-name --task classify --data rows.jsonl --out x", "hf download some-name"),
    ("train gpt nowhere --out x", "regard prepare", "nowhere"),
    ("train gpt builtin:python-docs --out x", "regard prepare builtin:python-docs --out DATA"),
    ("train transformer two.tsv --out x", "--pairs"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_what_is_in_the_wrong_place(
    case: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, *parts = case
    answer = refused(capsys, *words.split())
    assert [part for part in parts if part not in answer] == [], answer
    assert not Path("x").exists() and not Path("x.jsonl").exists()


def test_a_table_is_prose_where_it_is_said_to_be(place: Path) -> None:
    quick = ["--quiet", "--valid-fraction", "0", "--test-fraction", "0"]
    assert main(["prepare", "table.txt", "--format", "text", "--out", "x", *quick]) == 0
    assert main(["prepare", "table.txt", "--format", "tsv", "--pairs", "--out", "y", *quick]) == 0
    kinds = [json.loads(Path(name, "data.json").read_text())["kind"] for name in ("x", "y")]
    assert kinds == ["text", "pairs"]


def test_a_name_of_the_hub_is_taken_with_and_without_its_mark(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("hub:gpt2-none", "gpt2-none"):
        answer = refused(capsys, "info", name)
        assert "--download" in answer and "hub:" not in answer


def test_a_run_may_be_called_like_its_model(place: Path) -> None:
    """regard train gpt data --out gpt: an empty directory of that name is no model."""
    from regard.training.build import family

    Path("gpt").mkdir()
    assert family(recipes.Recipe(model="gpt")) == "gpt"


# -- refused commands


MISSING = [
    "train gpt nowhere --out x",
    "finetune model --task classify --data nowhere.jsonl --out x",
    "distill model --student layers=1 --data nowhere --out x",
    "align model --data nowhere.jsonl --out x",
    "evaluate model nowhere.txt --out x",
    "predict model --file nowhere.txt",
    "generate model --file nowhere.txt",
    "embed model --file nowhere.txt --out x.npy",
    "prepare nowhere.txt --out x",
    "check nowhere.jsonl --task tag",
    "augment nowhere.jsonl --task tag --out x",
    "quantize model --data nowhere.jsonl --out x",
    "prune model --heads 0.3 --data nowhere.jsonl --out x",
    "probe model --task nowhere.conll --out x",
    "probe model --task structure --data nowhere.conllu --out x",
    "compare nowhere.txt --out x",
]


def test_a_missing_file_is_noticed_before_torch_is_imported(place: Path) -> None:
    code = (
        "import json, sys; from regard.cli.main import main\n"
        "for words in json.load(sys.stdin):\n"
        "    code = main(words.split())\n"
        "    assert code == 2 and 'torch' not in sys.modules, words\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(MISSING), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("regard: ")]
    assert len(lines) == len(MISSING) and all("nowhere" in line for line in lines)
    assert not [file for file in place.iterdir() if file.name.startswith("x")]


# A refused command for each that takes --out: the directories hold no model and no data.
WITH_OUT = {
    "prepare": "book.txt --tokenizer nothing", "augment": "rows.jsonl --task nothing",
    "train": "gpt data --steps 1", "finetune": "model --task classify --data rows.jsonl",
    "distill": "model --student layers=1 --data rows.jsonl", "align": "model --data rows.jsonl",
    "convert": "model --merge", "embed": "model text", "evaluate": "model rows.jsonl",
    "probe": "model --task book.txt",
    "compare": "book.txt --models nothing", "quantize": "model", "prune": "model --heads 0.5",
    "export": "model --to nothing",
    "look": "model text", "claims run": "nothing", "claims show": "nothing",
    "draw attention": "--model model text", "draw positions": "nothing",
    "draw schedules": "nothing", "draw masks": "nothing", "draw order": "--mem-len -1 a",
    "draw parameters": "nothing", "draw operations": "nothing",
}  # fmt: skip


def test_every_command_with_out_is_tried() -> None:
    assert {name for name in EVERY if "--out" in known_to(name)} - {"claims list"} == set(WITH_OUT)


@pytest.mark.parametrize("name", WITH_OUT)
def test_a_refused_command_leaves_nothing(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(place.rglob("*"))
    suffix = ".npy" if name == "embed" else ".svg" if name.startswith("draw") else ""
    refused(capsys, *name.split(), *WITH_OUT[name].split(), "--out", f"x{suffix}")
    assert sorted(place.rglob("*")) == before


# -- keys


def test_an_extension_is_true_and_an_objective_a_word() -> None:
    words = ["extensions.gates=true", "objective=masked", "objective.share=0.2"]
    recipe = recipes.make(recipes.overrides(words))
    assert recipe.extensions == {"gates": {}}
    assert recipe.objective == {"name": "masked", "share": 0.2}
    words = ["extensions.gates.kind=gru", "extensions.gates=true", "extensions.pointer=false"]
    assert recipes.make(recipes.overrides(words)).extensions == {"gates": {"kind": "gru"}}
    with refuses(ConfigError, "extensions.gates", "true"):
        recipes.make(recipes.overrides(["extensions.gates=3"]))
    with refuses(ConfigError, "seed=1"):
        recipes.overrides(["seed=1", "seed.more=2"])


@pytest.mark.parametrize("key", ["mlm_probability", "share", "label_smoothing", "smoothing"])
def test_a_key_of_another_objective_says_whose_it_is(key: str) -> None:
    having = "pairs" if "smoothing" in key else "masked"
    with refuses(UnknownName, f"objective.{key}", "causal", having):
        options_of(objective("causal"), {key: 0.1})
    with refuses(UnknownName, "objective.share"):
        options_of(objective("masked"), {"mlm_probability": 0.1})


def test_keys_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with words, those of options with their option; what a recipe has is all there."""
    rows = {row["key"]: row for row in matching()}
    assert all(row["about"] for row in rows.values())
    assert rows["optimizer.lr"]["option"] == "--lr"
    for name, kind in recipes.fields_of(recipes.Recipe).items():
        if dataclasses.is_dataclass(kind):
            for inner in recipes.fields_of(kind):  # type: ignore[arg-type]
                assert f"{name}.{inner}" in rows
    assert main(["recipes", "--keys", "dropout"]) == 0
    assert "shape.dropout_attention" in capsys.readouterr().out
    assert "nothing-like-it" in refused(capsys, "recipes", "--keys", "nothing-like-it")
    train: Any = EVERY["train"]
    assert "regard recipes --keys" in " ".join(train.get_help(click.Context(train)).split())


# -- problems, counts and shares


def test_a_question_is_named_where_all_stand_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [{"text": "cat", "answer_start": 4}]
    rows = [{"id": "first", "question": "Who?", "answers": answers},
            {"id": "second", "question": " ", "answers": answers}]  # fmt: skip
    paragraph = {"context": "The cat sat.", "qas": rows}
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    assert main(["check", str(file), "--task", "answer"]) == 2
    assert "squad.json:1: second: " in capsys.readouterr().out


def test_counts_have_their_plural() -> None:
    assert [counted(n, "step") for n in (0, 1, 1000)] == ["0 steps", "1 step", "1,000 steps"]
    assert (counted(2, "query"), counted(2, "day")) == ("2 queries", "2 days")


def test_no_share_of_the_peak_is_above_all_of_it() -> None:
    """A peak that was measured while others took the cores is lower than what is done later."""
    assert peak_share(157.0, 1.0, 100.0) == 1.0
    assert peak_share(30.0, 1.0, 100.0) == pytest.approx(0.3)
    assert peak_share(30.0, 0.0, 100.0) == 1.0
