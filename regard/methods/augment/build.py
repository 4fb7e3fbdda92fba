"""The maker of variants with the models that its methods ask for."""

from __future__ import annotations

from regard.data.augment.examples import Augmenter, Settings
from regard.formats.directory import load
from regard.methods.augment.back_translation import Back
from regard.methods.augment.masked import Masked


def build(settings: Settings) -> Augmenter:
    masked, back = None, None
    if settings.masked:
        masked = Masked(load(settings.masked), top=settings.top, rule=settings.rule)
    if settings.away:
        back = Back(
            load(settings.away),
            load(settings.home) if settings.home else None,
            seed=settings.seed,
            temperature=settings.temperature,
            beams=settings.beams,
            prefixes=settings.prefixes,
        )
    return Augmenter(settings, masked, back)
