"""Transformer-XL in the layout of transformers 4.35, the last that had it."""

from __future__ import annotations

from typing import Any

from regard.exchange.format import Field, Format, Name, both, name
from regard.models.heads import Heads
from regard.models.transformer_xl import TransformerXLConfig


def names(config: TransformerXLConfig, heads: Heads) -> list[Name]:
    ours, theirs = "blocks.{i}.attention", "transformer.layers.{i}.dec_attn"
    biases = theirs if config.untied else "transformer"
    clusters = len(config.cutoffs) + 1
    tables = 1 if config.ratio == 1 else clusters
    projected = config.ratio != 1 or config.embedding not in (None, config.width)
    own = clusters if not config.shared_projections else 1
    return [
        *(name(f"tokens.tables.{j}.weight", f"transformer.word_emb.emb_layers.{j}.weight") for j in range(tables)),
        *(name(f"tokens.projections.{j}", f"transformer.word_emb.emb_projs.{j}") for j in range(tables * projected)),
        name(f"{ours}.layer.project.weight", f"{theirs}.qkv_net.weight"),
        name(f"{ours}.layer.out.weight", f"{theirs}.o_net.weight"),
        name(f"{ours}.layer.score.distance.weight", f"{theirs}.r_net.weight"),
        name(f"{ours}.layer.score.u", f"{biases}.r_w_bias"),
        name(f"{ours}.layer.score.v", f"{biases}.r_r_bias"),
        *both(f"{ours}.norm", f"{theirs}.layer_norm"),
        *both("blocks.{i}.feed_forward.layer.wide", "transformer.layers.{i}.pos_ff.CoreNet.0"),
        *both("blocks.{i}.feed_forward.layer.narrow", "transformer.layers.{i}.pos_ff.CoreNet.3"),
        *both("blocks.{i}.feed_forward.norm", "transformer.layers.{i}.pos_ff.layer_norm"),
        *(name(f"output.biases.{j}", f"crit.out_layers.{j}.bias") for j in range(tables)),
        *(name(f"output.projections.{j}", f"crit.out_projs.{j}") for j in range(own * projected)),
        *(name(f"output.cluster_{p}", f"crit.cluster_{p}") for p in ("weight", "bias") if clusters > 1),
    ]  # fmt: skip


def read(given: dict[str, Any]) -> dict[str, Any]:
    width, size = given.get("d_model", 1024), given.get("d_embed", 1024)
    return {
        "cutoffs": tuple(given.get("cutoffs", (20000, 40000, 200000))),
        "embedding": None if size == width else size,
        "norm": "pre" if given.get("pre_lnorm", False) else "post",
    }


def write(config: TransformerXLConfig) -> dict[str, Any]:
    return {
        "cutoffs": list(config.cutoffs),
        "d_embed": config.embedding or config.width,
        "pre_lnorm": config.norm == "pre",
        "tie_projs": [False] + [config.shared_projections] * len(config.cutoffs),
    }


TRANSFORMER_XL = Format(
    type="transfo-xl",
    family="transformer-xl",
    classes={"TransfoXLLMHeadModel": {}},
    fields={
        "vocabulary": Field("vocab_size", 267735),
        "ratio": Field("div_val", 4),
        "width": Field("d_model", 1024),
        "layers": Field("n_layer", 18),
        "heads": Field("n_head", 16),
        "head_size": Field("d_head", 64),
        "hidden": Field("d_inner", 4096),
        "memory": Field("mem_len", 1600),
        "same_length": Field("same_length", True),
        "clamp": Field("clamp_len", 1000, lambda x: max(0, x), lambda x: x if x > 0 else -1),
        "untied": Field("untie_r", True),
        "shared_projections": Field("proj_share_all_but_first", True),
        "dropout": Field("dropout", 0.1),
        "dropout_attention": Field("dropatt", 0.0),
        "epsilon": Field("layer_norm_epsilon", 1e-5),
        "start_std": Field("init_std", 0.02),
    },
    fixed={"attn_type": 0, "sample_softmax": -1, "adaptive": True, "tie_word_embeddings": True},
    inert=frozenset({"cutoffs", "d_embed", "pre_lnorm", "tie_projs", "init", "init_range", "proj_init_std",
                     "tie_weight", "n_token", "trainer_compatible", "tgt_len", "ext_len"}),
    names=names,
    reads=read,
    writes=write,
    ignored=r"pos_emb\.inv_freq$|crit\.out_layers\.\d+\.weight$|crit\.out_projs\.\d+$",
    prefix="transformer.",
    opens="transformers 5 has dropped Transformer-XL; 4.35 opens it",
)  # fmt: skip
FORMATS = (TRANSFORMER_XL,)
