"""`generate` and `stream`: from prompts to texts."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.core.text import Bilingual
from regard.data.batching import ROWS, by_tokens
from regard.data.tokenizer import Tokenizer
from regard.decoding.beam import Beams, Hypothesis, Rules
from regard.decoding.decode_state import DecodeState, at_rest, reader_for
from regard.decoding.generation_config import options_for
from regard.decoding.options import DecodingOptions
from regard.decoding.pieces import CONTEXT, TextStreamer, TokenStream
from regard.decoding.processors import Processor
from regard.decoding.prompts import Prompt, Prompts
from regard.decoding.sampling import DecodingLoop, Pick, SampledToken, Sampler, TopLogprobs, greedy
from regard.decoding.speculative import draft_for
from regard.formats.directory import Checkpoint

SPARE = 16  # tokens that a short text may need beyond twice the length of its source


@dataclass(frozen=True)
class Generation:
    """A continuation of a prompt (or the target that a decoder wrote for a source)."""

    text: str | None  # up to the end or a stop word; None for a model without a tokenizer
    ids: list[int]  # all new tokens, including the end token or those of a stop word
    logprobs: list[float]  # of each token under the model itself, before any processor
    score: float  # the sum of the logprobs; for beams divided by the length penalty
    reason: str  # why it ended: "end", "stop" (a stop word) or "length"
    top_logprobs: list[TopLogprobs] = field(default_factory=list)  # of each token; [] unless asked
    prompt: list[int] = field(default_factory=list, repr=False, compare=False)
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)

    @property
    def logprob(self) -> float:
        return sum(self.logprobs)

    def pieces(self) -> list[str]:
        """The text of each token; a character of several tokens stands at the last of them."""
        if self.tokenizer is None:
            return [f" {token}" for token in self.ids]
        stream = TokenStream(self.tokenizer, self.prompt)
        pieces = [stream.add(token) for token in self.ids]
        return [*pieces[:-1], pieces[-1] + stream.finish()] if pieces else []

    def alternatives(self) -> list[list[tuple[str, float]]]:
        """The recorded likeliest tokens of each place: their text at this place, and their
        log-probability."""
        before, places = [*self.prompt], []
        for token, best in zip(self.ids, self.top_logprobs, strict=False):
            places.append([(self.text_after(before, each), logprob) for each, logprob in best])
            before.append(token)
        return places

    def text_after(self, before: list[int], token: int) -> str:
        if self.tokenizer is None:
            return f" {token}"
        stream = TokenStream(self.tokenizer, before[-CONTEXT:])
        return stream.add(token) + stream.finish() or self.tokenizer.tokens([token])[0]

    def _repr_html_(self) -> str:
        """In a notebook: each token as strong as it is probable, with its recorded alternatives."""
        from regard.report import notebook

        chances = [chance(logprob) for logprob in self.logprobs]
        others = self.alternatives() or [[] for _ in self.ids]
        tokens = [
            notebook.Token(piece, own, [(text, chance(logprob)) for text, logprob in best])
            for piece, own, best in zip(self.pieces(), chances, others, strict=True)
        ]
        before = self.tokenizer.decode(self.prompt) if self.tokenizer is not None else ""
        rows = [
            (Bilingual("tokens", "词元"), len(self.ids)),
            (Bilingual("log-probability", "对数概率"), self.logprob),
            (Bilingual("ended by", "结束原因"), self.reason),
        ]
        return notebook.rendered("", notebook.Tokens(tokens, before), notebook.Facts(rows))


def chance(logprob: float) -> float:
    return min(1.0, math.exp(logprob))


def generate(
    loaded: Checkpoint, prompts: Prompt | Sequence[Prompt], **options: Any
) -> list[list[Generation]]:
    """Returns for each prompt its samples, or its best beams. `DecodingOptions` names every option.

    >>> generate(loaded, "Once upon a time", max_new_tokens=50, top_p=0.9, seed=1)[0][0].text
    """
    chosen = options_for(loaded, options)
    decoder = Decoder(loaded, chosen)
    ids = [decoder.prompts.encode(prompt, chosen.truncate) for prompt in listed(prompts)]
    results: list[list[Generation]] = [[] for _ in ids]
    with decoder.ready():
        for part in decoder.batches(ids):
            generated = decoder.run([ids[i] for i in part], [chosen.first + i for i in part])
            for i, generations in zip(part, generated, strict=True):
                results[i] = generations
    return results


def stream(loaded: Checkpoint, prompt: Prompt, **options: Any) -> Generator[str, None, Generation]:
    """Yields pieces of text as soon as they are certain, never half a character; joined, they are
    the text of `generate`. The Generation is the return value of the generator (`yield from`)."""
    chosen = options_for(loaded, options)
    if chosen.num_beams > 1 or chosen.num_samples > 1:
        raise ConfigError(
            "only one text can be streamed; leave out num_beams and num_samples, or use generate"
        )
    decoder = Decoder(loaded, chosen)
    decoder.prompts.words()  # refuses a model without a tokenizer
    return decoder.stream(decoder.prompts.encode(prompt, chosen.truncate), chosen.first)


def listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Returns a single prompt as a list of one; a list of ids is one prompt."""
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


class Decoder:
    """One model with one set of decoding options."""

    def __init__(self, loaded: Checkpoint, options: DecodingOptions) -> None:
        self.model, self.options = loaded.model, options
        reader_for(self.model)  # refuses a model that cannot generate, before other checks
        self.prompts = Prompts(loaded)
        self.ends = list(self.prompts.ends() if options.eos_ids is None else options.eos_ids)
        forced = {options.forced_bos_token_id, *(options.forced_eos_token_id or ())}
        self.suppressed = (
            [i for i in self.prompts.suppressed() if i not in forced]
            if options.suppress_tokens is None
            else list(options.suppress_tokens)
        )
        self.prompts.check_known("eos_ids", self.ends)
        for name, ids in options.tokens().items():
            self.prompts.check_known(name, ids)
        if options.stop:
            self.prompts.words()
        self.draft = None if options.draft is None else draft_for(self.model, options.draft)

    def decoder_prefix(self) -> list[int]:
        """Returns the first tokens of a decoder's text; none for a model without an encoder."""
        if not self.prompts.pair:
            return []
        start = self.options.decoder_start_token_id
        start = self.model.config.start_id if start is None else start
        first = list(self.options.decoder_input_ids or [start])
        return first if first[0] == start else [start, *first]

    def limits(self, prompt: list[int]) -> tuple[int, int]:
        """Returns the most and the least new tokens after a prompt."""
        return self.options.limits(len(self.decoder_prefix() or prompt))

    def reader(self) -> DecodeState:
        reader = reader_for(self.model)
        reader.decoder_prefix = self.decoder_prefix()
        return reader

    def process(self, most: int, least: int) -> Processor | None:
        return self.options.processors(self.ends, self.suppressed, most, least)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Switches dropout off and sets the requested precision inside the context."""
        bf16 = self.options.precision == "bf16"
        kind = self.model.device.type
        autocast = torch.autocast(kind, torch.bfloat16) if bf16 else nullcontext()
        with at_rest(self.model), autocast:
            yield

    def batches(self, prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yields the places of prompts that are read together: of similar length, and as many as
        fit. A translation is seldom twice as long as its source, so more fit than if all of them
        grew to the limit; but never more than four times as many."""
        o = self.options
        sizes = []
        for ids in prompts:
            most = len(ids) + self.limits(list(ids))[0]
            usual = min(most, 3 * len(ids) + SPARE) if self.prompts.pair else most
            sizes.append(max(usual, most // 4) * o.num_beams * o.num_samples)
        return by_tokens(np.array(sizes, np.int64), rows=o.batch_size or ROWS)

    def run(self, prompts: list[list[int]], numbers: list[int]) -> list[list[Generation]]:
        """Returns the texts of each prompt; prompts with the same limits are run together."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i, prompt in enumerate(prompts):
            groups.setdefault(self.limits(prompt), []).append(i)
        results: list[list[Generation]] = [[] for _ in prompts]
        if self.draft is not None:
            return [self.drafted(*pair) for pair in zip(prompts, numbers, strict=True)]
        for limits, rows in groups.items():
            among = [prompts[i] for i in rows]
            if self.options.num_beams > 1:
                generated = self.search(among, *limits)
            else:
                generated = self.sample(among, [numbers[i] for i in rows], *limits)
            for i, generations in zip(rows, generated, strict=True):
                results[i] = generations
        return results

    def sample(
        self, prompts: list[list[int]], numbers: list[int], most: int, least: int
    ) -> list[list[Generation]]:
        loop = self.loop(prompts, numbers, most, least)
        samples = self.options.num_samples
        texts = SampledTexts(self, loop, [prompt for prompt in prompts for _ in range(samples)])
        for drawn in loop.steps():
            texts.add(drawn)
        generations = texts.generations()
        return [generations[i : i + samples] for i in range(0, len(generations), samples)]

    def drafted(self, prompt: list[int], number: int) -> list[Generation]:
        """Returns the samples of one prompt, one after the other."""
        most, least = self.limits(prompt)
        generations = []
        for sample in range(self.options.num_samples):
            assert self.draft is not None
            loop = self.draft.loop(self, prompt, number, most, least, sample)
            texts = SampledTexts(self, loop, [prompt])
            for drawn in loop.steps():
                texts.add(drawn)
            generations += texts.generations()
        return generations

    def loop(
        self, prompts: list[list[int]], numbers: list[int], most: int, least: int
    ) -> DecodingLoop:
        """Reads every prompt and returns a loop with `num_samples` sequences for each."""
        if self.draft is not None:
            return self.draft.loop(self, prompts[0], numbers[0], most, least)
        with torch.inference_mode():
            reader = self.reader()
            logits = reader.begin(prompts, most, self.options.num_samples)
        return self.loop_after(reader, logits, numbers, most, least)

    def loop_after(
        self, reader: DecodeState, logits: Tensor, numbers: list[int], most: int, least: int
    ) -> DecodingLoop:
        """Returns the loop over prompts that a reader has read; `logits` has a row for each."""
        options, samples = self.options, self.options.num_samples
        with torch.inference_mode():
            logits = logits.repeat_interleave(samples, 0) if samples > 1 else logits
        pick: Pick = greedy
        if options.draws:
            pick = Sampler(options.seed, [(n, s) for n in numbers for s in range(samples)])
        return DecodingLoop(
            reader,
            logits,
            pick=pick,
            process=self.process(most, least),
            ends=self.ends,
            limit=most,
            top_logprobs=options.top_logprobs,
        )

    def search(self, prompts: list[list[int]], most: int, least: int) -> list[list[Generation]]:
        with torch.inference_mode():
            reader = self.reader()
            logits = reader.begin(prompts, most, self.options.num_beams)
            hypotheses = self.beams_after(reader, prompts, most, least).search(logits)
        return [
            [self.hypothesis(prompt, each) for each in results]
            for prompt, results in zip(prompts, hypotheses, strict=True)
        ]

    def beams_after(
        self, reader: DecodeState, prompts: list[list[int]], most: int, least: int
    ) -> Beams:
        """Returns the search over prompts that a reader has read."""
        o = self.options
        rules = Rules(
            o.num_beams,
            o.num_return_sequences,
            o.length_penalty_form,
            o.length_penalty,
            o.beam_stopping,
            most,
            self.ends,
            o.top_logprobs,
        )

        def stops(number: int, tokens: list[int]) -> bool:
            return self.streamed(prompts[number], tokens).over

        return Beams(reader, rules, self.process(most, least), stops if o.stop else None)

    def hypothesis(self, prompt: list[int], hypothesis: Hypothesis) -> Generation:
        text = self.generation(prompt, hypothesis.tokens, hypothesis.logprobs)
        return replace(text, score=hypothesis.score, top_logprobs=hypothesis.top_logprobs)

    def sampled(
        self, prompt: list[int], tokens: list[SampledToken], streamer: TextStreamer | None
    ) -> Generation:
        ids, logprobs = [each.token for each in tokens], [each.logprob for each in tokens]
        best = [each.top_logprobs for each in tokens] if self.options.top_logprobs else []
        return replace(self.generation(prompt, ids, logprobs, streamer), top_logprobs=best)

    def streamer(self, prompt: list[int]) -> TextStreamer:
        before = [] if self.prompts.pair else prompt
        return TextStreamer(self.prompts.words(), before, self.options.stop)

    def streamed(self, prompt: list[int], ids: list[int]) -> TextStreamer:
        """Returns the text of these tokens, up to an end token or a stop word."""
        streamer = self.streamer(prompt)
        streamer.add(*(ids[:-1] if ids and ids[-1] in self.ends else ids))
        streamer.finish()
        return streamer

    def generation(
        self,
        prompt: list[int],
        ids: list[int],
        logprobs: list[float],
        streamer: TextStreamer | None = None,
    ) -> Generation:
        ended = bool(ids) and ids[-1] in self.ends
        text = None
        if streamer is None and self.prompts.special is not None:
            streamer = self.streamed(prompt, ids)
        if streamer is not None:
            streamer.finish()
            text = streamer.text
        reason = "end" if ended else "stop" if streamer is not None and streamer.over else "length"
        before = [] if self.prompts.pair else prompt
        words = None if self.prompts.special is None else self.prompts.words()
        return Generation(
            text, ids, logprobs, sum(logprobs), reason, prompt=before, tokenizer=words
        )

    def stream(self, prompt: list[int], number: int) -> Generator[str, None, Generation]:
        with self.ready():
            loop = self.loop([prompt], [number], *self.limits(prompt))
        steps, texts = loop.steps(), SampledTexts(self, loop, [prompt], streams=True)
        while True:
            with self.ready():  # only for this step: between two steps the caller may use the model
                drawn = next(steps, None)
            if drawn is None:
                break
            for piece in texts.add(drawn):
                if piece:
                    yield piece
        if rest := texts.finish(0):
            yield rest
        return texts.generations()[0]


class SampledTexts:
    """The texts that grow in a loop, one for each of its sequences. A stop word closes its
    sequence."""

    def __init__(
        self,
        decoder: Decoder,
        loop: DecodingLoop,
        prompts: Sequence[list[int]],  # of each sequence
        streams: bool = False,  # whether the pieces of the texts are wanted
    ) -> None:
        self.decoder, self.loop, self.prompts = decoder, loop, prompts
        wanted = streams or bool(decoder.options.stop)
        self.streamers = [decoder.streamer(prompt) for prompt in prompts] if wanted else []
        self.tokens: list[list[SampledToken]] = [[] for _ in prompts]

    def add(self, drawn: Sequence[SampledToken]) -> list[str]:
        """Adds the tokens of a step and returns the text that each makes certain."""
        pieces = []
        for each in drawn:
            self.tokens[each.number].append(each)
            piece = ""
            if self.streamers and each.token not in self.loop.ends:
                piece = self.streamers[each.number].add(each.token)
                if self.streamers[each.number].over:
                    self.loop.close(each.number)
            pieces.append(piece)
        return pieces

    def finish(self, number: int) -> str:
        """Returns the rest of a text that has ended."""
        return self.streamers[number].finish() if self.streamers else ""

    def generation(self, number: int) -> Generation:
        streamer = self.streamers[number] if self.streamers else None
        return self.decoder.sampled(self.prompts[number], self.tokens[number], streamer)

    def generations(self) -> list[Generation]:
        return [self.generation(number) for number in range(len(self.prompts))]
