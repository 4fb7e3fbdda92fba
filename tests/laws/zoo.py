"""One small specimen of every model, and texts to read, so that a law is written once for all.

A text is a dictionary of unpadded vectors under the names of the model's own arguments. `collate`
pads several of them into one batch and remembers where each text's rows come out. The weights are
large (deviation 0.2): small ones hide mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from hypothesis import settings
from torch import Tensor, nn

from regard.attention.memory import CrossKV
from regard.models.base import Config, EncoderDecoder, Model
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.longformer import Longformer, LongformerConfig
from regard.models.longformer_characters import CharacterLongformer, CharacterLongformerConfig
from regard.models.lstm import LSTM, LSTMConfig
from regard.models.roberta import Roberta, RobertaConfig
from regard.models.state import State
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_xl import TransformerXL, TransformerXLConfig
from regard.models.xlnet import XLNet, XLNetConfig

VOCABULARY = 29
Text = dict[str, Tensor]
Sees = dict[
    str, Tensor
]  # for each field of tokens: may the row (first) depend on the token (second)?

MARKS = {
    "input_ids": "attention_mask",
    "decoder_input_ids": "decoder_attention_mask",
}
FOLLOWERS = ("segments", "order", "global_tokens")  # padded together with the tokens
JUNK = {"segments": 1, "order": -1, "global_tokens": True}  # what padding holds must not matter
CLOSE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 6e-2}


def few(examples: int) -> Callable[[Any], Any]:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


@dataclass(frozen=True)
class Specimen:
    name: str
    kind: type[Model]
    config: Config
    reach: Callable[[Any, Text], Tensor]  # what a row may depend on among its own tokens, [R, T]
    fields: tuple[str, ...] = ("input_ids",)  # what one text consists of
    embedding: str = "tokens"  # where the model looks its tokens up
    stretch: int = 1  # texts are this many times longer: windows show only then
    stepwise: bool = False  # can it read a text piece by piece?

    def __str__(self) -> str:
        return self.name

    @property
    def pair(self) -> bool:
        return "decoder_input_ids" in self.fields

    @property
    def main(self) -> str:
        return "decoder_input_ids" if self.pair else "input_ids"

    def fresh(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
        """A model of one's own to change."""
        model = self.kind(self.config)
        generator = torch.Generator().manual_seed(seed)
        norms = {
            id(part.weight)
            for part in model.modules()
            if isinstance(part, nn.LayerNorm | nn.RMSNorm)
        }
        with torch.no_grad():
            for value in [*model.parameters(), *model.buffers()]:
                value.normal_(0.0, 0.2, generator=generator).add_(float(id(value) in norms))
        return model.to(dtype).eval()

    def text(self, length: int, seed: int) -> Text:
        """A text of `length` times `stretch` tokens, with all that the model may be told."""
        dice = torch.Generator().manual_seed(seed * 1009 + length)
        length = max(1, length * self.stretch - (seed % self.stretch))

        def draw(high: int, *shape: int) -> Tensor:
            return torch.randint(high, shape, generator=dice)

        fields: Text = {self.main: draw(VOCABULARY, length)}
        rows = length
        if self.pair:
            fields["input_ids"] = draw(VOCABULARY, 1 + int(draw(9)))
        if "segments" in self.fields:
            fields["segments"] = draw(2, length)
        if "global_tokens" in self.fields:
            fields["global_tokens"] = draw(9, length) == 0
        if "order" in self.fields:
            order = torch.randperm(length, generator=dice)
            fields["order"] = torch.where((draw(4, length) == 0) & (order > 0), -1, order)
        if "targets" in self.fields:
            unknown = (fields["order"] >= 0).nonzero()[:, 0]
            fields["targets"] = unknown[draw(len(unknown), 1 + length // 2)]
            rows = fields["targets"].numel()
        return fields | {"labels": draw(VOCABULARY, rows)}

    def sees(self, text: Text) -> Sees:
        own = self.reach(self.config, text)
        if not self.pair:
            return {"input_ids": own}
        source = torch.ones(own.size(0), text["input_ids"].numel()).bool()
        return {"input_ids": source, "decoder_input_ids": own}

    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The summed surprisal of all real rows' labels; BERT is also asked what comes next."""
        hidden = model(**batch.inputs)
        rows = torch.cat([hidden[i, span] for i, span in enumerate(batch.spans)])
        total: Tensor = model.output.surprisal(rows, torch.cat(batch.labels))
        if "next" in getattr(model, "heads", {}):
            scores = model.read("next", hidden, batch.inputs.get("attention_mask")).log_softmax(-1)
            answers = [int(label[0]) % 2 for label in batch.labels]
            total = total - sum(scores[i, answer] for i, answer in enumerate(answers))
        return total


@dataclass
class Batch:
    inputs: dict[str, Tensor]  # the model's arguments
    spans: list[slice]  # where each text's rows come out
    labels: list[Tensor] = field(default_factory=list)

    def of(self, hidden: Tensor) -> list[Tensor]:
        return [hidden[i, span] for i, span in enumerate(self.spans)]


def collate(texts: list[Text], left: bool = False, extra: int = 0, marks: bool = True) -> Batch:
    """Pads to the longest and `extra` more. Without `marks` the texts must be equally long."""
    inputs: dict[str, Tensor] = {}
    spans: list[slice] = []
    for name, mark in MARKS.items():
        if name not in texts[0]:
            continue
        width = max(text[name].numel() for text in texts) + extra
        assert marks or all(text[name].numel() == width for text in texts)
        starts = [width - text[name].numel() if left else 0 for text in texts]
        spans = [slice(s, s + t[name].numel()) for s, t in zip(starts, texts, strict=True)]
        for one in (name, *(FOLLOWERS if name == "input_ids" else ())):
            if one in texts[0]:
                table = torch.full((len(texts), width), JUNK.get(one, 3))
                for row, span, text in zip(table, spans, texts, strict=True):
                    row[span] = text[one]
                inputs[one] = table.to(texts[0][one].dtype)
        if marks:
            inputs[mark] = torch.zeros(len(texts), width, dtype=torch.bool)
            for row, span in zip(inputs[mark], spans, strict=True):
                row[span] = True
    if "targets" in texts[0]:
        width = max(text["targets"].numel() for text in texts)
        inputs["targets"] = torch.zeros(len(texts), width, dtype=torch.long)
        for row, span, text in zip(inputs["targets"], spans, texts, strict=True):
            row[: text["targets"].numel()] = text["targets"] + span.start
        spans = [slice(0, text["targets"].numel()) for text in texts]
    return Batch(inputs, spans, [text["labels"] for text in texts])


@cache
def model_of(specimen: Specimen, dtype: torch.dtype = torch.float32) -> Any:
    """A model for all to read, and none to change."""
    return specimen.fresh(dtype).requires_grad_(False)


def close(actual: Tensor, expected: Tensor, limit: float, what: str = "") -> None:
    """Within `limit` of the largest number expected; NaN is never close."""
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if actual.numel():
        size = max(1e-3, expected.abs().max().item())
        gap = (actual.double() - expected.double()).abs().max().item() / size
        assert gap <= limit, f"{what}: off by {gap:.2e} of the largest, allowed {limit:.0e}"


class Reader:
    """Reads a batch piece by piece, remembering; what the pieces give is what one pass would."""

    def __init__(self, model: Any, inputs: dict[str, Tensor], capacity: int) -> None:
        self.model, self.inputs = model, inputs
        self.name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
        self.state: State = model.start(inputs[self.name].size(0), capacity)
        if isinstance(model, EncoderDecoder):
            self.state.source_attention_mask = inputs.get("attention_mask")
            encoded = model.encode(inputs["input_ids"], self.state.source_attention_mask)
            self.state.source: list[CrossKV] = model.project_source(encoded)

    def read(self, start: int, end: int) -> Tensor:
        tokens, attention_mask = self.inputs[self.name], self.inputs.get(MARKS[self.name])
        tokens, attention_mask = (
            tokens[:, start:end],
            None if attention_mask is None else attention_mask[:, start:end],
        )
        if attention_mask is not None and attention_mask.all():
            attention_mask = None  # as a decoder does, which says only once where the padding was
        if self.state.source:
            y = self.model.decode(
                tokens,
                self.state.source,
                self.state.source_attention_mask,
                attention_mask,
                self.state,
            )
        else:
            y = self.model(tokens, attention_mask=attention_mask, state=self.state)
        return y


def everything(c: Any, text: Text) -> Tensor:
    length = text["input_ids"].numel()
    return torch.ones(length, length).bool()


def past(c: Any, text: Text) -> Tensor:
    length = text["decoder_input_ids" if "decoder_input_ids" in text else "input_ids"].numel()
    return torch.ones(length, length).bool().tril()


def earlier(c: Any, text: Text) -> Tensor:
    """XLNet: words of a rank not above one's own; a row that asks for a word must not see it."""
    order = text["order"]
    if "targets" in text:
        return order[None] < order[text["targets"], None]
    return order[None] <= order[:, None]


def last_ones(c: TransformerXLConfig, text: Text) -> Tensor:
    step = past(c, text).triu(1 - c.mem_len)
    return through([step] * c.layers)


def neighbours(c: LongformerConfig, text: Text) -> Tensor:
    every = everything(c, text)
    wide = text.get("global_tokens", torch.zeros(every.size(0), dtype=torch.bool))
    steps = [every.triu(-(w // 2)).tril(w // 2) | wide[None] | wide[:, None] for w in c.windows]
    return through(steps)


def causal_neighbours(c: CharacterLongformerConfig, text: Text) -> Tensor:
    steps = []
    for layer in range(c.layers):
        distance = torch.arange(text["input_ids"].numel())
        distance, step, window = distance[:, None] - distance, c.dilation(layer), c.window(layer)
        apart = (distance % step == 0) & (distance <= window * step)
        steps.append((distance >= 0) & ((distance <= window) | apart))
    return through(steps)


def through(steps: list[Tensor]) -> Tensor:
    """What can be reached layer by layer: a path of one step a layer."""
    reached = steps[0].double()
    for step in steps[1:]:
        reached = (step.double() @ reached).gt(0).double()
    return reached.bool()


SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 16, "layers": 2, "heads": 2}
BERT = BertConfig(**SMALL, ffn_size=24, context=96)
GPT_SMALL = GPTConfig(**SMALL, context=96)
PAIR = TransformerConfig(
    **SMALL,
    ffn_size=24,
    decoder_layers=3,
    decoder_heads=4,
    decoder_ffn_size=20,
    dropout_attention=0.1,
)
XL = TransformerXLConfig(
    **SMALL,
    cutoffs=(7, 15),
    ratio=2,
    head_size=6,
    ffn_size=24,
    mem_len=200,
    same_length=False,
    clamp_len=9,
)
XL_PRE = XL.replace(norm="pre", shared_projections=False, clamp_len=0)
XL_PLAIN = XL.replace(cutoffs=(), ratio=1, untied=False)
XL_SAME = XL.replace(same_length=True, mem_len=4, ratio=1, embedding=12)
XLNET = XLNetConfig(**SMALL, head_size=8, ffn_size=24)
LONG = LongformerConfig(**SMALL, ffn_size=24, context=96, window=(2, 4))
T5_SMALL = T5Config(**SMALL, head_size=6, ffn_size=24, buckets=8, farthest=10, decoder_layers=3)
T5_NEW = T5_SMALL.replace(gated=True, tied=False, scaled=False, activation="gelu_tanh")
CHARACTERS = CharacterLongformerConfig(
    **SMALL | {"heads": 4, "layers": 3}, ffn_size=24, windows=(2, 3, 4), dilations=(1, 2, 3)
)
LLAMA = LlamaConfig(**SMALL, ffn_size=24, context=96, rope_theta=50.0, dropout=0.1)
LLAMA_GROUPED = LLAMA.replace(
    heads=4, kv_heads=2, head_size=6, bias=True, tied=True, dropout_attention=0.1,
    rope_scaling=(4.0, 1.0, 4.0, 16.0),
)  # fmt: skip
ROBERTA = RobertaConfig(**SMALL, ffn_size=24, context=96)
ORDERED = ("input_ids", "segments", "order")
GLOBAL = ("input_ids", "global_tokens")


def reader(
    name: str, kind: type[Model], config: Config, reach: Any = past, **more: Any
) -> Specimen:
    """A model that reads from left to right, and can do so piece by piece."""
    return Specimen(name, kind, config, reach, stepwise=True, **more)


def pair(name: str, kind: type[Model], config: Config) -> Specimen:
    return reader(name, kind, config, fields=("input_ids", "decoder_input_ids"))


def long(name: str, config: Config, *fields: str) -> Specimen:
    return Specimen(name, Longformer, config, neighbours, fields, "embeddings.tokens", stretch=7)


ZOO = (
    pair("transformer", Transformer, PAIR),
    pair("transformer-pre", Transformer, PAIR.replace(norm="pre", bias=True)),
    Specimen("bert", Bert, BERT, everything, ("input_ids", "segments"), "embeddings.tokens"),
    reader("gpt1", GPT, GPT_SMALL.replace(norm="post")),
    reader("gpt2", GPT, GPT_SMALL),
    reader("gpt3", GPT, GPT_SMALL.replace(layers=4, band=3), stretch=6),
    reader("transformer-xl", TransformerXL, XL),
    reader("transformer-xl-pre", TransformerXL, XL_PRE),
    reader("transformer-xl-plain", TransformerXL, XL_PLAIN),
    reader("transformer-xl-same", TransformerXL, XL_SAME, last_ones),
    Specimen("xlnet", XLNet, XLNET, everything, ("input_ids", "segments")),
    Specimen("xlnet-ordered", XLNet, XLNET.replace(clamp_len=4), earlier, ORDERED),
    Specimen("xlnet-asking", XLNet, XLNET, earlier, (*ORDERED, "targets")),
    reader("xlnet-left", XLNet, XLNET.replace(left_to_right=True, untied=False)),
    pair("t5", T5, T5_SMALL),
    pair("t5-v1_1", T5, T5_NEW),
    long("longformer", LONG, "input_ids"),
    long("longformer-global", LONG, *GLOBAL),
    long("longformer-one-layer", LONG.replace(layers=1, window=4), *GLOBAL),
    Specimen("characters", CharacterLongformer, CHARACTERS, causal_neighbours, stretch=7),
    reader("llama", Llama, LLAMA),
    reader("llama-grouped", Llama, LLAMA_GROUPED),
    Specimen("roberta", Roberta, ROBERTA, everything, embedding="embeddings.tokens"),
    reader("lstm", LSTM, LSTMConfig(VOCABULARY, 16)),
)
STEPWISE = tuple(specimen for specimen in ZOO if specimen.stepwise)
ATTENTIVE = tuple(specimen for specimen in ZOO if specimen.kind is not LSTM)
