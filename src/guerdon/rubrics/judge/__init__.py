"""Judges: from a template and an answer to a verdict, and from verdicts to a score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rubrics.judge.cache import *
    from guerdon.rubrics.judge.criterion import *
    from guerdon.rubrics.judge.judge import *
    from guerdon.rubrics.judge.judgement import *
    from guerdon.rubrics.judge.template import *
    from guerdon.rubrics.judge.verdict import *

__getattr__, __dir__ = lazy_names(
    __name__, "judge", "criterion", "judgement", "cache", "template", "verdict"
)
