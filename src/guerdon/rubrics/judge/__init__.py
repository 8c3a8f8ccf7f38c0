"""Judges: chat models that score what code can't."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rubrics.judge.cache import *
    from guerdon.rubrics.judge.judge import *
    from guerdon.rubrics.judge.question import *
    from guerdon.rubrics.judge.template import *
    from guerdon.rubrics.judge.verdict import *

__getattr__, __dir__ = lazy_names(__name__, "judge", "verdict", "question", "cache", "template")
