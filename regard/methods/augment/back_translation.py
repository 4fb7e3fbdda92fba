"""Back-translation: translates a text into another language and back again; the label stays.

Yu et al. (2018) and Xie et al. (2020, UDA) paraphrase texts to classify in this way. Paraphrases
that are sampled with a temperature of 0.8 to 0.9 differ more than the ones that beam search finds.
A text is translated sentence by sentence, and the white space between the sentences is kept.

For translation pairs (Sennrich et al. 2016), one model of the opposite direction is enough: it
translates the target into a new source, and the target, which is what the model learns to write,
stays as people wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.core.errors import ConfigError
from regard.data.examples import TextPair
from regard.data.sentences import CLOSING, FULL, sentences
from regard.data.words import is_unspaced
from regard.evaluation.text_predictor import TextPredictor
from regard.formats.directory import Checkpoint

TEMPERATURE = 0.9


class BackTranslator:
    """Translates texts with one model and, if there is a second model, translates them back with
    it."""

    def __init__(
        self,
        away: Checkpoint,
        home: Checkpoint | None = None,
        *,
        seed: int = 0,
        temperature: float = TEMPERATURE,
        beams: int = 0,
        prefixes: tuple[str | None, str | None] = (None, None),
    ) -> None:
        if beams < 0 or temperature <= 0:
            raise ConfigError(
                f"beams is {beams} and temperature {temperature:g}; give a number of beams, or "
                "a temperature above 0 to sample with"
            )
        how: dict[str, Any] = {"num_beams": beams} if beams else {"temperature": temperature}
        self.models = [
            TextPredictor(model, task="translate", prefix=prefix, seed=seed, **how)
            for model, prefix in zip((away, home), prefixes, strict=True)
            if model is not None
        ]
        self.there_and_back, self.draws = home is not None, not beams

    def __call__(self, texts: Sequence[str], first: int = 0) -> list[str]:
        """Translates each text. Sentence `i` of all texts samples with the key `first + i`.

        If a model writes nothing for a sentence, that sentence stays as it is when the text comes
        back into its own language. With only one model it would be in the wrong language, so the
        whole text becomes "".
        """
        parts = [sentences(text) for text in texts]
        sources = [part.strip() for every in parts for part in every if part.strip()]
        new = iter(self.translated(sources, first))
        return [
            self.put_together(every, [next(new) if part.strip() else "" for part in every])
            for every in parts
        ]

    def translated(self, sources: Sequence[str], first: int) -> list[str]:
        """Sends each sentence through all models; the result is "" if one of them writes nothing
        for it."""
        distinct = list(sources) if self.draws else list(dict.fromkeys(sources))
        texts, lost = list(distinct), set[int]()  # beam search gives equal sources one answer
        for model in self.models:
            answers = model.answers([TextPair(text) for text in texts], first) if texts else []
            new = [str(answer.value).strip() for answer in answers]
            lost |= {number for number, text in enumerate(new) if not text}
            texts = [text or before for text, before in zip(new, texts, strict=True)]
        texts = ["" if number in lost else text for number, text in enumerate(texts)]
        if self.draws:
            return texts
        known = dict(zip(distinct, texts, strict=True))
        return [known[text] for text in sources]

    def put_together(self, old: Sequence[str], new: Sequence[str]) -> str:
        """Joins the new sentences with the white space of the old sentences that they replace."""
        if not self.there_and_back and any(
            part.strip() and not text for part, text in zip(old, new, strict=True)
        ):
            return ""
        whole = ""
        for part, text in zip(old, new, strict=True):
            added = respaced(part, text or part.strip())
            whole += " " + added if apart(whole, added) else added
        return whole

    @property
    def notes(self) -> list[str]:
        """Returns notes about sentences that were too long for a model to read whole."""
        return [f"on the way: {note}" for model in self.models for note in model.notes]


def respaced(old: str, new: str) -> str:
    """Puts the white space around the old sentence around the new one."""
    start, end = len(old) - len(old.lstrip()), len(old.rstrip())
    return f"{old[:start]}{new}{old[end:]}" if old.strip() else old


def apart(before: str, after: str) -> bool:
    """Returns whether white space is missing between two sentences. Chinese has none there, but
    English that was translated from it needs some."""
    if not before or not after or before[-1].isspace() or after[0].isspace():
        return False
    return before.rstrip(CLOSING)[-1:] not in FULL and not is_unspaced(after[0])
