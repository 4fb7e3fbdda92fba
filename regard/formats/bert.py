"""BERT's published tensor names and config fields."""

from __future__ import annotations

from regard.formats.format import Field, Format, TensorName, activation, both, name
from regard.models.bert import BertConfig
from regard.models.output import Heads


def block(prefix: str) -> list[TensorName]:
    """Returns the names of a layer of BERT; Longformer's differs only in its attention."""
    ours, theirs = "blocks.{i}", prefix + "encoder.layer.{i}"
    return [
        *both(f"{ours}.attention.norm", f"{theirs}.attention.output.LayerNorm"),
        *both(f"{ours}.feed_forward.layer.wide", f"{theirs}.intermediate.dense"),
        *both(f"{ours}.feed_forward.layer.narrow", f"{theirs}.output.dense"),
        *both(f"{ours}.feed_forward.norm", f"{theirs}.output.LayerNorm"),
    ]


def embeddings(prefix: str) -> list[TensorName]:
    return [
        name("embeddings.tokens.weight", f"{prefix}embeddings.word_embeddings.weight"),
        name("embeddings.positions.weight", f"{prefix}embeddings.position_embeddings.weight"),
        name("embeddings.segments.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
        *both("embeddings.norm", f"{prefix}embeddings.LayerNorm"),
    ]


def projections(ours: str, theirs: str, suffix: str = "") -> list[TensorName]:
    return both(
        f"{ours}.project", *(f"{theirs}.self.{p}{suffix}" for p in ("query", "key", "value"))
    )


HEADS = {
    "pool": [],
    "next": both("heads.next.out", "cls.seq_relationship"),
    "classify": both("heads.classify.out", "classifier"),
    "choose": both("heads.choose.out", "classifier"),
    "tag": both("heads.tag.out", "classifier"),
    "answer": both("heads.answer.out", "qa_outputs"),
    "masked": [
        *both("output.transform.dense", "cls.predictions.transform.dense"),
        *both("output.transform.norm", "cls.predictions.transform.LayerNorm"),
        name("output.bias", "cls.predictions.bias"),
    ],
}


def names(config: BertConfig, heads: Heads) -> list[TensorName]:
    theirs = "bert.encoder.layer.{i}.attention"
    return [
        *embeddings("bert."),
        *projections("blocks.{i}.attention.layer", theirs),
        *both("blocks.{i}.attention.layer.out", f"{theirs}.output.dense"),
        *block("bert."),
        *(entry for head in heads for entry in HEADS[head]),
        *(
            entry
            for head in heads
            if head in ("pool", "next", "classify", "choose")
            for entry in both(f"heads.{head}.dense", "bert.pooler.dense")
        ),
    ]


FIELDS = {
    "vocab_size": Field("vocab_size", 30522),
    "context": Field("max_position_embeddings", 512),
    "width": Field("hidden_size", 768),
    "layers": Field("num_hidden_layers", 12),
    "heads": Field("num_attention_heads", 12),
    "ffn_size": Field("intermediate_size", 3072),
    "segments": Field("type_vocab_size", 2),
    "activation": activation("hidden_act", "gelu"),
    "dropout": Field("hidden_dropout_prob", 0.1),
    "dropout_attention": Field("attention_probs_dropout_prob", 0.1),
    "dropout_head": Field("classifier_dropout"),
    "norm_eps": Field("layer_norm_eps", 1e-12),
    "init_std": Field("initializer_range", 0.02),
    "pad_id": Field("pad_token_id", 0),
}

BERT = Format(
    type="bert",
    family="bert",
    classes={
        "BertModel": {"pool": 0},
        "BertForPreTraining": {"masked": 0, "next": 2},
        "BertForMaskedLM": {"masked": 0},
        "BertForNextSentencePrediction": {"next": 2},
        "BertForSequenceClassification": {"classify": 2},
        "BertForMultipleChoice": {"choose": 1},
        "BertForTokenClassification": {"tag": 2},
        "BertForQuestionAnswering": {"answer": 2},
    },
    fields=FIELDS,
    fixed={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    inert=frozenset(
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type".split()
    ),
    others=frozenset({"BertLMHeadModel"}),
    names=names,
    ignored=r"position_ids$|cls\.predictions\.decoder\.(weight|bias)$",
    same={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    prefix="bert.",
    base_class="BertModel",
    takes_heads=True,
)
FORMATS = (BERT,)
