"""Back-translation: into another language and back again, the label kept.

So Yu et al. (2018) and Xie et al. (2020, UDA) paraphrase what is classified. Drawn with a
temperature of 0.8 to 0.9 the paraphrases differ more than those that beams find. A text is
translated sentence by sentence, with the white space between them kept.

Of pairs to translate (Sennrich et al. 2016) one model that goes the other way is enough: the source
is what it makes of the target, and the target, which is learned, stays what people wrote.
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
    """Translates with one model, and with a second one back again."""

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
                f"beams is {beams} and temperature {temperature:g}; give a number of beams, or a "
                "temperature above 0 to draw by"
            )
        how: dict[str, Any] = {"num_beams": beams} if beams else {"temperature": temperature}
        self.models = [
            TextPredictor(model, task="translate", prefix=prefix, seed=seed, **how)
            for model, prefix in zip((away, home), prefixes, strict=True)
            if model is not None
        ]
        self.there_and_back, self.draws = home is not None, not beams

    def __call__(self, texts: Sequence[str], first: int = 0) -> list[str]:
        """What becomes of each text; sentence `i` of all draws with the key `first + i`.

        A sentence of which a model makes nothing stays as it is where the text comes back into its
        own language. With one model it would be one in the wrong language: the text is then "".
        """
        parts = [sentences(text) for text in texts]
        sources = [part.strip() for every in parts for part in every if part.strip()]
        new = iter(self.translated(sources, first))
        return [
            self.put_together(every, [next(new) if part.strip() else "" for part in every])
            for every in parts
        ]

    def translated(self, sources: Sequence[str], first: int) -> list[str]:
        """Each sentence by all models; "" where one of them makes nothing of it."""
        distinct = list(sources) if self.draws else list(dict.fromkeys(sources))
        texts, lost = list(distinct), set[int]()  # beams find one answer to equal sources
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
        """The text of new sentences, with the white space of those that they stand for."""
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
        """What became of sentences that a model could not read whole."""
        return [f"on the way: {note}" for model in self.models for note in model.notes]


def respaced(old: str, new: str) -> str:
    """A sentence with the white space around the one that it stands for."""
    start, end = len(old) - len(old.lstrip()), len(old.rstrip())
    return f"{old[:start]}{new}{old[end:]}" if old.strip() else old


def apart(before: str, after: str) -> bool:
    """Is white space missing between two sentences? Chinese has none there, and English made of it
    needs some.
    """
    if not before or not after or before[-1].isspace() or after[0].isspace():
        return False
    return before.rstrip(CLOSING)[-1:] not in FULL and not is_unspaced(after[0])
