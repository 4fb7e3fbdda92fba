"""Transformer-XL in the layout of transformers 4.35, the last version that had it."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.formats.format import Field, Format, TensorName, both, name
from regard.models.output import Heads
from regard.models.transformer_xl import TransformerXLConfig


def names(config: TransformerXLConfig, heads: Heads) -> list[TensorName]:
    ours, theirs = "blocks.{i}.attention", "transformer.layers.{i}.dec_attn"
    biases = theirs if config.untied else "transformer"
    clusters = len(config.cutoffs) + 1
    tables = 1 if config.ratio == 1 else clusters
    projected = config.ratio != 1 or config.embedding not in (None, config.width)
    own = clusters if not config.shared_projections else 1

    def numbered(ours: str, theirs: str, count: int) -> list[TensorName]:
        return [name(ours.format(j=j), theirs.format(j=j)) for j in range(count)]

    return [
        *numbered("tokens.tables.{j}.weight", "transformer.word_emb.emb_layers.{j}.weight", tables),
        *numbered(
            "tokens.projections.{j}", "transformer.word_emb.emb_projs.{j}", tables * projected
        ),
        name(f"{ours}.layer.project.weight", f"{theirs}.qkv_net.weight"),
        name(f"{ours}.layer.out.weight", f"{theirs}.o_net.weight"),
        name(f"{ours}.layer.score.distance.weight", f"{theirs}.r_net.weight"),
        name(f"{ours}.layer.score.u", f"{biases}.r_w_bias"),
        name(f"{ours}.layer.score.v", f"{biases}.r_r_bias"),
        *both(f"{ours}.norm", f"{theirs}.layer_norm"),
        *both("blocks.{i}.feed_forward.layer.wide", "transformer.layers.{i}.pos_ff.CoreNet.0"),
        *both("blocks.{i}.feed_forward.layer.narrow", "transformer.layers.{i}.pos_ff.CoreNet.3"),
        *both("blocks.{i}.feed_forward.norm", "transformer.layers.{i}.pos_ff.layer_norm"),
        *numbered("output.biases.{j}", "crit.out_layers.{j}.bias", tables),
        *numbered("output.projections.{j}", "crit.out_projs.{j}", own * projected),
        *numbered("output.cluster_weight", "crit.cluster_weight", clusters > 1),
        *numbered("output.cluster_bias", "crit.cluster_bias", clusters > 1),
    ]


def read(source: dict[str, Any]) -> dict[str, Any]:
    width, size = source.get("d_model", 1024), source.get("d_embed", 1024)
    cutoffs = tuple(source.get("cutoffs", (20000, 40000, 200000)))
    return {
        "cutoffs": cutoffs,
        "shared_projections": shared(source, len(cutoffs)),
        "embedding": None if size == width else size,
        "norm": "pre" if source.get("pre_lnorm", False) else "post",
    }


def shared(source: dict[str, Any], tails: int) -> bool:
    """Returns whether the rare clusters share projections. `tie_projs` decides for each cluster;
    their class saves no other field about it."""
    share = source.get("proj_share_all_but_first", True)
    ties = source.get("tie_projs") or [False] + [share] * tails
    if ties not in ([False] + [False] * tails, [False] + [True] * tails):
        raise ConfigError(
            f"config.json: tie_projs is {ties}; it must be false and then {tails} equal values"
        )
    return bool(ties[-1]) if tails else bool(share)


def write(config: TransformerXLConfig) -> dict[str, Any]:
    return {
        "cutoffs": list(config.cutoffs),
        "d_embed": config.embedding or config.width,
        "pre_lnorm": config.norm == "pre",
        "proj_share_all_but_first": config.shared_projections,
        "tie_projs": [False] + [config.shared_projections] * len(config.cutoffs),
    }


TRANSFORMER_XL = Format(
    type="transfo-xl",
    family="transformer-xl",
    classes={"TransfoXLLMHeadModel": {}},
    fields={
        "vocab_size": Field("vocab_size", 267735),
        "ratio": Field("div_val", 4),
        "width": Field("d_model", 1024),
        "layers": Field("n_layer", 18),
        "heads": Field("n_head", 16),
        "head_size": Field("d_head", 64),
        "ffn_size": Field("d_inner", 4096),
        "mem_len": Field("mem_len", 1600),
        "same_length": Field("same_length", True),
        "clamp_len": Field("clamp_len", 1000, lambda x: max(0, x), lambda x: x if x > 0 else -1),
        "untied": Field("untie_r", True),
        "dropout": Field("dropout", 0.1),
        "dropout_attention": Field("dropatt", 0.0),
        "norm_eps": Field("layer_norm_epsilon", 1e-5),
        "init_std": Field("init_std", 0.02),
    },
    fixed={"attn_type": 0, "sample_softmax": -1, "adaptive": True, "tie_word_embeddings": True},
    inert=frozenset(
        "cutoffs d_embed pre_lnorm tie_projs proj_share_all_but_first init init_range "
        "proj_init_std tie_weight n_token trainer_compatible tgt_len ext_len".split()
    ),
    names=names,
    reads=read,
    writes=write,
    ignored=r"pos_emb\.inv_freq$|crit\.out_layers\.\d+\.weight$|crit\.out_projs\.\d+$",
    prefix="transformer.",
    opens="transformers 5 has dropped Transformer-XL; 4.35 opens it",
)
FORMATS = (TRANSFORMER_XL,)
