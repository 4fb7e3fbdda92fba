"""The model `regard` of lm-evaluation-harness against its own `hf` model, on the same directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import regard
from regard.cli.main import main
from regard.core.errors import ConfigError, InputError, UnknownName
from tests.decoding.small import ZOO, tokenizer
from tests.evaluation.likelihoods import bert, gpt2, scrambled, speaking
from tests.refusals import refuses

pytest.importorskip("lm_eval")
from lm_eval.api.instance import Instance

from regard.evaluation.harness import HarnessPlan, run_harness
from regard.evaluation.harness_model import HarnessModel

LONG = "The cat sat on the mat. It's not the dog that did it. " * 8
PAIRS = [
    ("The cat sat", " on the mat"),
    ("The cat sat ", "on the mat"),
    ("The cat sat on the", " mat"),
    ("The cat sat on the", " dog"),
    ("", "The dog did not"),
    ("猫坐在", "垫子上。"),
    (LONG, " The dog"),
]
TEXTS = ["The cat sat on the mat.", LONG, "猫坐在垫子上。狗没有坐在那里。"]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: {target}
{more}
"""


def llama(path: Path) -> Path:
    torch.manual_seed(0)
    words = tokenizer("bytes-bpe")
    end = words.encode("<|endoftext|>")[0]
    config = hf.LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    return scrambled(hf.LlamaForCausalLM(config), path, "bytes-bpe")


def t5(path: Path) -> Path:
    torch.manual_seed(0)
    words = tokenizer("unigram")
    config = hf.T5Config(
        vocab_size=len(words), d_model=16, d_kv=8, num_heads=2, d_ff=32, num_layers=2,
        eos_token_id=words.ready.token_to_id("</s>"), decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return scrambled(hf.T5ForConditionalGeneration(config), path, "unigram")


def gpt1(path: Path) -> Path:
    torch.manual_seed(0)
    words = tokenizer("bytes-bpe")
    config = hf.OpenAIGPTConfig(
        vocab_size=len(words), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=words.encode("<|endoftext|>")[0],
    )  # fmt: skip
    return scrambled(hf.OpenAIGPTLMHeadModel(config), path, "bytes-bpe")


def marian(path: Path) -> Path:
    torch.manual_seed(0)
    words = tokenizer("unigram")
    pad = words.ready.token_to_id("<pad>")
    config = hf.MarianConfig(
        vocab_size=len(words), d_model=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, max_position_embeddings=512, pad_token_id=pad,
        decoder_start_token_id=pad, eos_token_id=words.ready.token_to_id("</s>"),
        forced_eos_token_id=None, scale_embedding=True,
    )  # fmt: skip
    return scrambled(hf.MarianMTModel(config), path, "unigram")


PAIRED = (t5, marian)  # encoder-decoder models


def asked(kind: str, rows: list[tuple[Any, ...]]) -> list[Any]:
    return [Instance(kind, {}, row, i) for i, row in enumerate(rows)]


def both(path: Path) -> tuple[Any, HarnessModel]:
    pytest.importorskip("peft")
    pytest.importorskip("accelerate")
    from lm_eval.models.huggingface import HFLM

    # Its cache of logits takes the first row of a group for the last one, where a continuation of
    # one token follows the same tokens as a longer one.
    theirs = HFLM(
        pretrained=str(path), device="cpu", dtype="float32", batch_size=3, logits_cache=False
    )
    return theirs, HarnessModel(str(path))


@pytest.mark.parametrize("make", [gpt1, gpt2, llama, t5, marian], ids=lambda make: make.__name__)
def test_scores_are_those_of_the_hf_model(make: Any, tmp_path: Path) -> None:
    theirs, ours = both(make(tmp_path / "model"))
    pairs = PAIRS if make not in PAIRED else [pair for pair in PAIRS if pair[0] != LONG]
    expected = theirs.loglikelihood(asked("loglikelihood", pairs))
    scores = ours.loglikelihood(asked("loglikelihood", pairs))
    assert [score for score, _ in scores] == pytest.approx([s for s, _ in expected], rel=1e-5)
    assert [greedy for _, greedy in scores] == [greedy for _, greedy in expected]
    texts = [(text,) for text in (TEXTS if make not in PAIRED else TEXTS[::2])]
    rolling = ours.loglikelihood_rolling(asked("loglikelihood_rolling", texts))
    reference = theirs.loglikelihood_rolling(asked("loglikelihood_rolling", texts))
    assert rolling == pytest.approx(reference, rel=1e-5)
    assert ours.measure == "log-likelihood"


@pytest.mark.parametrize("make", [gpt1, gpt2, llama, t5, marian], ids=lambda make: make.__name__)
def test_texts_are_those_of_the_hf_model(make: Any, tmp_path: Path) -> None:
    theirs, ours = both(make(tmp_path / "model"))
    options = {"until": ["."], "max_gen_toks": 9, "do_sample": False}
    rows = [(text, dict(options)) for text in ("The cat sat", "It's not", "猫坐在垫子上")]
    rows += [("The dog", {"until": ["the", "\n"], "max_gen_toks": 4})]
    expected = theirs.generate_until(asked("generate_until", rows))
    texts = ours.generate_until(asked("generate_until", rows))
    if make in PAIRED:  # theirs gets as many more tokens as the context has
        assert all(text and one.startswith(text) for one, text in zip(expected, texts, strict=True))
    else:
        assert texts == expected and any(expected)


def test_what_would_be_written_greedily_is_said_so(tmp_path: Path) -> None:
    loaded = regard.load(gpt2(tmp_path / "model"))
    model = HarnessModel(loaded)
    words = loaded.tokenizer
    ids = loaded.generate("The cat sat", max_new_tokens=5).ids
    before = words.encode("The cat sat")
    ((_, greedy), (_, other)) = model._loglikelihood_tokens(
        [(("", ""), before, ids), (("", ""), before, [*ids[:-1], (ids[-1] + 1) % len(words)])]
    )
    assert (greedy, other) == (True, False)


def test_a_masked_model_gives_pseudo_log_likelihoods(tmp_path: Path) -> None:
    path = bert(tmp_path / "bert")
    theirs, words = hf.BertForMaskedLM.from_pretrained(path), tokenizer("wordpiece")
    cls, sep, mask = (words.ready.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]"))

    def total(context: str, continuation: str) -> tuple[float, bool]:
        before = words.encode(context.rstrip(), special=False)
        whole = words.encode(context + continuation, special=False)
        framed, score, greedy = [cls, *whole, sep], 0.0, True
        for at in range(len(before) + 1, len(whole) + 1):
            row = torch.tensor([[*framed[:at], mask, *framed[at + 1 :]]])
            with torch.inference_mode():
                log_p = theirs(row).logits[0, at].log_softmax(-1)
            score += float(log_p[framed[at]])
            greedy &= int(log_p.argmax()) == framed[at]
        return score, greedy

    model = HarnessModel(str(path))
    pairs = [pair for pair in PAIRS if pair[0] != LONG]
    scores = model.loglikelihood(asked("loglikelihood", pairs))
    expected = [total(*pair) for pair in pairs]
    assert [s for s, _ in scores] == pytest.approx([s for s, _ in expected], abs=1e-4)
    assert [g for _, g in scores] == [g for _, g in expected]
    (whole,) = model.loglikelihood_rolling(asked("loglikelihood_rolling", [(TEXTS[0],)]))
    assert whole == pytest.approx(total("", TEXTS[0])[0], abs=1e-4)
    # the beginning of a long context is cut off; nothing else changes
    long = model.loglikelihood(asked("loglikelihood", [(LONG, " the dog")]))[0][0]
    room = 64 - 2 - len(words.encode(" the dog", special=False))
    last = words.encode(LONG, special=False)[-room:]
    row = (None, last, words.encode(" the dog", special=False))
    assert long == pytest.approx(model._loglikelihood_tokens([row])[0][0], abs=1e-5)
    assert model.measure == "pseudo-log-likelihood"
    with refuses(ConfigError, "fills blanks", "likelihoods"):
        model.generate_until(asked("generate_until", [("The", {"until": ["."]})]))


@pytest.mark.parametrize("name", ["xlnet", "transformer-xl", "lstm"])
def test_other_families_have_scores(name: str) -> None:
    specimen = next(one for one in ZOO if one.name == name)
    model = HarnessModel(speaking(specimen))
    scores = model.loglikelihood(asked("loglikelihood", PAIRS[:5]))
    alone = [model.loglikelihood(asked("loglikelihood", [pair]))[0] for pair in PAIRS[:5]]
    assert [s for s, _ in scores] == pytest.approx([s for s, _ in alone], abs=1e-9)
    assert all(score < 0 for score, _ in scores)
    expected = "pseudo-log-likelihood" if name == "xlnet" else "log-likelihood"
    assert model.measure == expected


def test_a_task_may_not_ask_for_what_is_not_offered(tmp_path: Path) -> None:
    model = HarnessModel(str(gpt2(tmp_path / "model")))
    with refuses(ConfigError, "typical_p", "temperature"):
        rows = [("The", {"until": ["."], "typical_p": 0.5, "max_gen_toks": 3})]
        model.generate_until(asked("generate_until", rows))
    with refuses(ConfigError, "100", "64", "max_gen_toks"):
        rows = [("The", {"until": ["."], "max_gen_toks": 100})]
        model.generate_until(asked("generate_until", rows))
    with refuses(InputError, "64", "shorten"):
        model.loglikelihood(asked("loglikelihood", [("The", LONG)]))


# -- whole tasks, offline


def tasks(place: Path) -> Path:
    """A directory with a task of choices, one of whole texts and one of answers."""
    data = place / "data.jsonl"
    rows = [
        {"question": "The cat sat on the", "choices": [" mat", " dog"], "label": 0, "text": " mat"},
        {"question": "It's not the", "choices": [" cat", " dog"], "label": 1, "text": " dog"},
        {"question": "猫坐在", "choices": ["垫子上", "公园"], "label": 0, "text": "垫子上"},
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = place / "tasks"
    files.mkdir()
    specs = {
        "cats": ("multiple_choice", "label", 'doc_to_choice: "{{choices}}"'),
        "stories": ("loglikelihood_rolling", '"{{question}}{{text}}"',
                    "metric_list:\n  - metric: word_perplexity\n  - metric: bits_per_byte"),
        "writing": ("generate_until", '"{{text}}"',
                    "generation_kwargs:\n  until: ['.']\n  max_gen_toks: 4\n"
                    "metric_list:\n  - metric: bleu"),
    }  # fmt: skip
    for name, (kind, target, more) in specs.items():
        text = TASK.format(name=name, data=data, kind=kind, target=target, more=more)
        if kind == "loglikelihood_rolling":
            text = text.replace('"{{question}}"', '""')
        (files / f"{name}.yaml").write_text(text)
    return files


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.usefixtures("cached")
def test_tasks_of_a_directory_run_offline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, files, out = gpt2(tmp_path / "model"), tasks(tmp_path), tmp_path / "out"
    words = ["evaluate", str(path), "--harness", "cats,stories,writing", "--harness-tasks",
             str(files), "--out", str(out), "--json"]  # fmt: skip
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["measure"] == "log-likelihood"
    assert result["examples"] == {"cats": 3, "stories": 3, "writing": 3}
    loaded = regard.load(path)
    right = 0
    samples = json.loads((out / "samples.json").read_text())
    for sample in samples["cats"]:
        doc = sample["doc"]
        model = HarnessModel(loaded)
        pairs = [(doc["question"], " " + choice) for choice in doc["choices"]]
        scores = [score for score, _ in model.loglikelihood(asked("loglikelihood", pairs))]
        right += scores.index(max(scores)) == doc["label"]
    assert result["harness"]["cats"]["acc"]["value"] == pytest.approx(right / 3)
    assert json.loads((out / "harness.json").read_text()) == result
    assert result["harness"]["stories"]["bits_per_byte"]["value"] > 0
    assert main([*words[:-1]]) == 0
    shown = capsys.readouterr().out
    assert "cats, 3 examples" in shown
    assert "bits_per_byte" in shown


@pytest.mark.usefixtures("cached")
def test_the_figures_of_a_masked_model_say_what_they_are(tmp_path: Path) -> None:
    path, files = bert(tmp_path / "bert"), tasks(tmp_path)
    result = run_harness(str(path), HarnessPlan(["cats"], files, limit=2))
    assert result["measure"] == "pseudo-log-likelihood"
    assert result["examples"] == {"cats": 2}
    assert any("pseudo-log-likelihood" in note for note in result["notes"])
    assert Path(result["out"]) == path / "harness-cats"


@pytest.mark.usefixtures("cached")
def test_refusals(tmp_path: Path) -> None:
    path, files = str(gpt2(tmp_path / "model")), tasks(tmp_path)
    with refuses(UnknownName, "dogs"):
        run_harness(path, HarnessPlan(["dogs"], files))
    with refuses(InputError, "nowhere"):
        run_harness(path, HarnessPlan(["cats"], tmp_path / "nowhere"))
    far = files / "far.yaml"
    far.write_text((files / "cats.yaml").read_text().replace("task: cats", "task: far")
                   .replace("dataset_path: json", "dataset_path: someone/something"))  # fmt: skip
    with refuses(ConfigError, "far", "--download"):
        run_harness(path, HarnessPlan(["far"], files))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["data.jsonl", "--harness", "cats"], ["data.jsonl", "--harness"]),
        (["--harness", "cats", "--pairs"], ["--pairs", "--harness"]),
        (["--harness-tasks", "tasks"], ["--harness is missing"]),
    ],
)
def test_wrong_options(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "model", *words]) == 2
    error = capsys.readouterr().err
    assert [part for part in parts if part not in error] == []
