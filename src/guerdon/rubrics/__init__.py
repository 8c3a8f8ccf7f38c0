"""Rubrics: small scores, and trees that combine them into one reward."""

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names
from guerdon.rubrics.checks import *
from guerdon.rubrics.containers import *
from guerdon.rubrics.function import *
from guerdon.rubrics.guards import *
from guerdon.rubrics.recording import *
from guerdon.rubrics.rubric import *
from guerdon.rubrics.trajectory import *

# These are imported when they are first used: most of them load pydantic.
if TYPE_CHECKING:
    from guerdon.rubrics.composer import *
    from guerdon.rubrics.ensemble import *
    from guerdon.rubrics.functions import *
    from guerdon.rubrics.judge import *
    from guerdon.rubrics.sandboxed import *

__getattr__, __dir__ = lazy_names(
    __name__,
    *("rubric", "recording", "containers", "function", "guards", "trajectory", "checks"),
    *("composer", "ensemble", "functions", "judge", "sandboxed"),
)
