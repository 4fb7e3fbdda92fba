"""LoRA adapters and peft: what one saves the other opens, with equal logits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.core.errors import FormatError
from regard.formats.adapter import reason_against
from regard.formats.directory import describe, heads_in
from regard.models.extensions import extend
from regard.models.extensions.lora import Adapter, merge
from tests.equal.reference import close, scramble
from tests.refusals import refuses

peft = pytest.importorskip("peft")
SIZE: dict[str, Any] = {"vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2}
ENCODER = SIZE | {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 24}
MARIAN = {
    "vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "max_position_embeddings": 24, "pad_token_id": 0,
    "decoder_start_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
T = transformers
CASES: dict[str, Callable[[], Any]] = {
    "bert": lambda: T.BertForMaskedLM(T.BertConfig(**ENCODER)),
    "bert-classify": lambda: T.BertForSequenceClassification(
        T.BertConfig(**ENCODER, num_labels=3)
    ),
    "bert-bare": lambda: T.BertModel(T.BertConfig(**ENCODER)),
    "roberta-tag": lambda: T.RobertaForTokenClassification(
        T.RobertaConfig(**ENCODER, num_labels=3, pad_token_id=1)
    ),
    "roberta-classify": lambda: T.RobertaForSequenceClassification(
        T.RobertaConfig(**ENCODER, num_labels=3, pad_token_id=1)
    ),
    "gpt2": lambda: T.GPT2LMHeadModel(
        T.GPT2Config(vocab_size=40, n_positions=24, n_embd=16, n_layer=2, n_head=2)
    ),
    "t5": lambda: T.T5ForConditionalGeneration(
        T.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
                   feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    ),
    "marian": lambda: T.MarianMTModel(T.MarianConfig(**MARIAN)),
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**ENCODER, num_key_value_heads=1)),
}  # fmt: skip
# All linear maps of the layers, by the names of each class.
TARGETS = {
    "bert": ["query", "key", "value", "attention.output.dense", "intermediate.dense"],
    "roberta": ["query", "key", "value", "attention.output.dense", "intermediate.dense"],
    "gpt2": ["c_attn", "c_fc", "mlp.c_proj"],
    "t5": ["q", "k", "v", "o", "wi_0", "wi_1", "wo"],
    "marian": ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"],
    "llama": ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
}
every = pytest.mark.parametrize("case", CASES)


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(2, 40, (2, 7), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids}


@torch.no_grad()
def theirs(model: Any) -> torch.Tensor:
    more = inputs()
    if model.config.is_encoder_decoder:
        more["decoder_input_ids"] = more["input_ids"].flip(1)
    output = model.eval()(**more)
    return output.last_hidden_state if hasattr(output, "last_hidden_state") else output.logits


@torch.no_grad()
def ours(loaded: Any, bare: bool) -> torch.Tensor:
    ids = inputs()["input_ids"]
    more = (ids.flip(1),) if loaded.model.kind == "encoder-decoder" else ()
    return loaded.model(ids, *more) if bare else loaded.logits(ids, *more)


def base(case: str, place: Path) -> Path:
    scramble(CASES[case]()).save_pretrained(place)
    return place


def disturb(model: Any) -> Any:
    dice = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, Adapter):
                part.A.normal_(0.0, 0.3, generator=dice)
                part.B.normal_(0.0, 0.3, generator=dice)
        for name, value in model.named_parameters():
            if name.startswith("heads."):
                value.normal_(0.0, 0.3, generator=dice)
    return model.eval()


@every
def test_ours_in_peft(case: str, tmp_path: Path) -> None:
    place, bare = base(case, tmp_path / "base"), case.endswith("bare")
    loaded = regard.load(place)
    family = loaded.model.family.name
    targets = {"gpt": ["project", "out", "wide"], "t5": ["query", "key", "value", "gate", "out"]}
    options = {"rank": 3, "alpha": 5, "base": str(place)}
    options["targets"] = targets.get(family, ["query", "value", "out", "narrow"])
    disturb(extend(loaded.model, "lora", options))
    loaded.save(tmp_path / "run")
    assert describe(tmp_path / "run")["adapters_open_in_peft"] is True
    model = peft.PeftModel.from_pretrained(type(CASES[case]()).from_pretrained(place),
                                           tmp_path / "run" / "adapter")  # fmt: skip
    wanted = ours(loaded, bare)
    close(wanted, theirs(model))
    again = regard.load(tmp_path / "run")
    assert torch.equal(ours(again, bare), wanted)
    adapters = regard.load(tmp_path / "run" / "adapter")
    tables = [model.extensions["lora"] for model in (adapters.model, loaded.model)]
    one, other = ({k: sorted(v) if k == "targets" else v for k, v in t.items()} for t in tables)
    assert one == other
    close(ours(adapters, bare), wanted, 1e-6)
    merged = merge(adapters.model)
    close(ours(adapters, bare), wanted)
    assert merged.extensions == {}


@every
def test_theirs_here(case: str, tmp_path: Path) -> None:
    place, bare = base(case, tmp_path / "base"), case.endswith("bare")
    plain = type(CASES[case]()).from_pretrained(place)
    kinds = {"classify": "SEQ_CLS", "tag": "TOKEN_CLS"}
    settings = peft.LoraConfig(
        r=2, lora_alpha=3, lora_dropout=0.1, target_modules=TARGETS[case.partition("-")[0]],
        task_type=kinds.get(case.partition("-")[2]), use_rslora=case == "bert",
        layers_to_transform=[1] if case == "llama" else None, init_lora_weights=False,
    )  # fmt: skip
    model = peft.get_peft_model(plain, settings)
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "modules_to_save" in name:
                value.normal_(0.0, 0.3, generator=dice)
    model.save_pretrained(tmp_path / "adapters")
    loaded = regard.load(tmp_path / "adapters")
    close(ours(loaded, bare), theirs(model))


def test_a_family_without_modules_says_so(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"vocab_size": 40, "width": 16, "layers": 1, "heads": 2}
    xlnet = extend(regard.create("xlnet", head_size=8, ffn_size=32, **shape), "lora")
    assert "no module of its class" in str(reason_against(xlnet, heads_in(xlnet)))
    xl = extend(
        regard.create("transformer-xl", head_size=8, ffn_size=32, cutoffs=(), **shape), "lora"
    )
    assert reason_against(xl, heads_in(xl))
    gpt = extend(regard.create("gpt", context=8, **shape), "lora", {"targets": ["query"]})
    assert "targets=project" in str(reason_against(gpt, heads_in(gpt)))
    from regard.formats.directory import save

    save(gpt.initialize(), tmp_path)
    assert not (tmp_path / "adapter").exists()
    assert "targets=project" in describe(tmp_path)["adapters_open_in_peft"]


def test_refusals(tmp_path: Path) -> None:
    place = base("bert", tmp_path / "base")
    plain = T.BertForMaskedLM.from_pretrained(place)
    peft.get_peft_model(plain, peft.LoraConfig(target_modules=["query"])).save_pretrained(
        tmp_path / "dir"
    )
    file = tmp_path / "dir" / "adapter_config.json"
    good = json.loads(file.read_text())
    wrong: dict[str, Any] = {"peft_type": "IA3", "use_dora": True, "rank_pattern": {"query": 2},
                             "init_lora_weights": "pissa", "bias": "all"}  # fmt: skip
    for key, value in wrong.items():
        file.write_text(json.dumps(good | {key: value}))
        with refuses(FormatError, key, str(value)):
            regard.load(tmp_path / "dir")
    file.write_text(json.dumps(good | {"base_model_name_or_path": None}))
    with refuses(FormatError, "base=MODEL"):
        regard.load(tmp_path / "dir")
    assert regard.load(tmp_path / "dir", base=place).model.extensions
    gpt2 = base("gpt2", tmp_path / "gpt2")
    with refuses(FormatError, "adapter on", "gpt"):
        regard.load(tmp_path / "dir", base=gpt2)
