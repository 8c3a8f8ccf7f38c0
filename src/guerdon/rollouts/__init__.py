"""Rollouts: playing, reading, scoring, aligning and crediting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rollouts.agents import *
    from guerdon.rollouts.alignment import *
    from guerdon.rollouts.comparing.changes import *
    from guerdon.rollouts.comparing.comparison import *
    from guerdon.rollouts.crediting import *
    from guerdon.rollouts.formats.atif import *
    from guerdon.rollouts.formats.openenv_trace import *
    from guerdon.rollouts.playing.observations import *
    from guerdon.rollouts.playing.openai_policy import *
    from guerdon.rollouts.playing.policies import *
    from guerdon.rollouts.playing.record import *
    from guerdon.rollouts.playing.worker import *
    from guerdon.rollouts.scoring.job import *
    from guerdon.rollouts.scoring.reading import *
    from guerdon.rollouts.scoring.result_rows import *
    from guerdon.rollouts.scoring.scorers import *
    from guerdon.rollouts.scoring.summary import *

__getattr__, __dir__ = lazy_names(
    __name__,
    *("scoring.reading", "scoring.result_rows", "scoring.summary", "scoring.scorers"),
    *("scoring.job", "agents", "alignment", "crediting", "playing.record", "playing.policies"),
    *("playing.observations", "playing.openai_policy", "playing.worker", "comparing.changes"),
    *("comparing.comparison", "formats.openenv_trace", "formats.atif"),
)
