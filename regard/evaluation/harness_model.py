"""The model `regard` of lm-evaluation-harness: importing this module registers it there.

    import lm_eval
    import regard.evaluation.harness_model
    lm_eval.simple_evaluate(model="regard", model_args="pretrained=my-gpt", tasks=["lambada"])

Texts become tokens by the rules of the harness's own models (`TemplateLM`), so that its `hf` model
and this one score the same tokens. A model that reads from left to right has log-likelihoods. A
model that fills blanks has none: its scores are pseudo-log-likelihoods, and `measure` says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text

from regard.core.errors import ConfigError, InputError
from regard.decoding.filling import MaskedFiller, filler_for
from regard.decoding.generation import generate
from regard.decoding.prompts import Prompts, readable
from regard.evaluation.likelihood import LikelihoodRequest, Scorer
from regard.evaluation.predictors import load_to_device
from regard.evaluation.pseudo_likelihood import blank_scores
from regard.formats.directory import Checkpoint

NEW_TOKENS = 256  # a task that names no number of new tokens gets as many as the model `hf` writes
# What a task may say of its generation, and the option of ours; all else is refused.
GENERATION = ("temperature", "top_k", "top_p", "num_beams", "repetition_penalty")

TokenPair = tuple[Any, list[int], list[int]]  # the texts, the context and the continuation


@register_model("regard")
class HarnessModel(TemplateLM):
    """A model directory, or an opened model, as lm-evaluation-harness asks for one."""

    def __init__(
        self,
        pretrained: str | Checkpoint,
        batch_size: int | str | None = None,
        max_length: int | None = None,
        max_gen_toks: int = NEW_TOKENS,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.loaded = load_to_device(pretrained) if isinstance(pretrained, str) else pretrained
        self.model, self.prompts = self.loaded.model, Prompts(self.loaded)
        self.tokenizer = self.prompts.words()
        if device is not None:
            self.model.to(device)
        self._device = self.model.device
        self.batch_size = 32 if batch_size in (None, "auto") else int(batch_size or 0)
        self.max_gen_toks = max_gen_toks
        self.backend = "seq2seq" if self.prompts.pair else "causal"
        self.filler: MaskedFiller | None = None
        if self.model.fills and not self.prompts.pair:
            filler = filler_for(self.loaded, 1, "each", 1)  # refuses an encoder without its head
            assert isinstance(filler, MaskedFiller)
            self.filler, self.measure = filler, "pseudo-log-likelihood"
            around = len(filler.frame([]))
            context = getattr(self.model.config, "context", None)
            sizes = [size for size in (context, max_length) if size is not None]
            self.limit = min(sizes) - around if sizes else None
        else:
            self.scorer, self.measure = Scorer(self.loaded, max_length), "log-likelihood"
            self.limit = self.scorer.limit

    # -- tokens

    @property
    def tokenizer_name(self) -> str:
        return str(self.loaded.path).replace("/", "__")

    @property
    def eot_token_id(self) -> int:
        return self.prompts.end()

    @property
    def prefix_token_id(self) -> int:
        """The token that stands before a text without context: that of transformers."""
        special = self.prompts.special
        if self.filler is not None and special is not None and special.cls is not None:
            return special.cls
        begins = None if special is None else special.start
        return self.eot_token_id if begins is None else begins

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        if add_special_tokens is None:
            begins = self.tokenizer.decode([self.prefix_token_id], special=True)
            add_special_tokens = self.filler is None and not string.startswith(begins)
        return self.tokenizer.encode(readable(string), special=add_special_tokens)

    # -- likelihoods

    def _loglikelihood_tokens(
        self, requests: Sequence[TokenPair], **options: Any
    ) -> list[tuple[float, bool]]:
        pairs = [self.cut(before, after) for _, before, after in requests]
        if self.filler is not None:
            results = self.pseudo(pairs, self.filler)
        else:
            scores = self.scorer.scores([LikelihoodRequest(*pair) for pair in pairs])
            results = [(sum(each.logprobs), each.greedy) for each in scores]
        for (texts, _, _), result in zip(requests, results, strict=True):
            if texts is not None:  # a piece of a longer text has none
                self.cache_hook.add_partial("loglikelihood", texts, result)
        return results

    def cut(self, before: list[int], after: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Cuts the beginning of a context that is too long, as the harness's models do."""
        if self.filler is not None and before[:1] == [self.prefix_token_id]:
            before = before[1:]  # the frame of a masked model adds it
        if not after:
            raise InputError("a continuation has no tokens; this tokenizer does not see it")
        if self.limit is None:
            return tuple(before), tuple(after)
        if self.prompts.pair:
            return tuple(before[-self.limit :]), tuple(after)
        room = self.limit - len(after) + (self.filler is None)  # the last token is only predicted
        if room < (self.filler is None):
            raise InputError(
                f"a continuation has {len(after):,} tokens, and this model reads {self.limit:,} at "
                "once; shorten it"
            )
        return tuple(before[-room:] if room else ()), tuple(after)

    def pseudo(
        self, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], filler: MaskedFiller
    ) -> list[tuple[float, bool]]:
        """Hides every token of a continuation in turn; the context and the others are seen."""
        rows, gold, sizes = [], [], []
        for before, after in pairs:
            framed = filler.frame([*before, *after])
            first = int(framed[0] == filler.special.cls) + len(before)
            for at, token in enumerate(after, first):
                rows.append(([*framed[:at], filler.mask, *framed[at + 1 :]], at))
                gold.append(token)
            sizes.append(len(after))
        scores = iter(blank_scores(filler, rows, gold))
        parts = [[next(scores) for _ in range(size)] for size in sizes]
        return [(sum(p for p, _ in part), all(best for _, best in part)) for part in parts]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """Returns the log-likelihood of whole texts. What is longer than the model reads is read in
        windows; each token is predicted once."""
        windows: list[TokenPair] = []
        counts = []
        for (text,) in (request.args for request in requests):
            tokens = self.tok_encode(text)
            # a window has one token more than a model that fills blanks may read
            most = len(tokens) if self.limit is None else self.limit - (self.filler is not None)
            pieces = utils.get_rolling_token_windows(
                tokens, self.prefix_token_id, max(most, 1), context_len=1
            )
            parts = [(None, *utils.make_disjoint_window(piece)) for piece in pieces]
            windows += parts
            counts.append(len(parts))
        scores = iter(self._loglikelihood_tokens(windows))
        totals = [sum(next(scores)[0] for _ in range(count)) for count in counts]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    # -- generation

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continues the contexts up to a word that ends them; requests with equal options share
        batches."""
        if self.filler is not None:
            raise ConfigError(
                f"a task asks for text, and {self.loaded.path} is a "
                f"{type(self.model).__name__}, which fills blanks; choose tasks with likelihoods"
            )
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            key = json.dumps(request.args[1], sort_keys=True, default=str)
            groups.setdefault(key, []).append(i)
        texts = [""] * len(requests)
        for places in groups.values():
            contexts = [requests[i].args[0] for i in places]
            wanted = requests[places[0]].args[1]
            for i, text in zip(places, self.continued(contexts, wanted), strict=True):
                texts[i] = text
                self.cache_hook.add_partial("generate_until", requests[i].args, text)
        return texts

    def continued(self, contexts: list[str], wanted: dict[str, Any]) -> list[str]:
        kwargs = dict(normalize_gen_kwargs(wanted, self.max_gen_toks))
        until = kwargs.pop("until", None) or []
        stop = [word for word in ([until] if isinstance(until, str) else until) if word]
        most, draws = int(kwargs.pop("max_gen_toks")), bool(kwargs.pop("do_sample", False))
        if unknown := sorted(set(kwargs) - set(GENERATION)):
            raise ConfigError(
                f"a task sets {unknown[0]!r} for its texts, which regard does not offer here; it "
                f"knows {', '.join(GENERATION)}, until, do_sample and max_gen_toks"
            )
        options = {name: value for name, value in kwargs.items() if value is not None}
        if not draws:
            options |= {"temperature": 0.0}
            options = {n: v for n, v in options.items() if n not in ("top_k", "top_p")}
            if options.get("num_beams", 1) > 1:
                del options["temperature"]
        room = self.limit if self.limit is None or self.prompts.pair else self.limit - most
        if room is not None and room < 1:
            raise ConfigError(
                f"a task asks for up to {most:,} new tokens, and this model reads {self.limit:,} "
                "with the context; lower max_gen_toks"
            )
        ids = [self.tok_encode(context) or [self.prefix_token_id] for context in contexts]
        ids = [row[-room:] for row in ids] if room is not None else ids
        generations = generate(
            self.loaded, ids, max_new_tokens=most, stop=tuple(stop),
            batch_size=self.batch_size, **options,
        )  # fmt: skip
        answers = (self.tokenizer.target.decode(each[0].ids) for each in generations)
        return [postprocess_generated_text(text, stop, None) for text in answers]
