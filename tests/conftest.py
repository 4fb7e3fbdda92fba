"""Hypothesis draws the same examples in every run, so that a failure can be repeated and a change
that is right is never refused for what it did not touch. To look for new ones:

    HYPOTHESIS_PROFILE=random make test
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
