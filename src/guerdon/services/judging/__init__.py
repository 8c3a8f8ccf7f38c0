"""Judges: from a template and an answer to a verdict, and from verdicts to a score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.services.judging.cache import *
    from guerdon.services.judging.criterion import *
    from guerdon.services.judging.judge import *
    from guerdon.services.judging.judgement import *
    from guerdon.services.judging.template import *
    from guerdon.services.judging.verdict import *

__getattr__, __dir__ = lazy_names(
    __name__, "judge", "criterion", "judgement", "cache", "template", "verdict"
)
