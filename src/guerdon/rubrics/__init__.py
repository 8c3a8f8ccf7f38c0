"""Rubrics: small scores, and trees that combine them into one reward."""

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names
from guerdon.rubrics import checks
from guerdon.rubrics.checks import *
from guerdon.rubrics.containers import Gate, RubricDict, RubricList, Sequential, WeightedSum
from guerdon.rubrics.function import FunctionRubric, as_rubric
from guerdon.rubrics.guards import Guarded
from guerdon.rubrics.recording import is_pending
from guerdon.rubrics.rubric import HookHandle, Rubric
from guerdon.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

if TYPE_CHECKING:
    from guerdon.rubrics.composer import *
    from guerdon.rubrics.ensemble import *
    from guerdon.rubrics.functions import *
    from guerdon.rubrics.judge import *
    from guerdon.rubrics.sandboxed import *

__all__ = [
    "ExponentialDiscountingTrajectoryRubric",
    "FunctionRubric",
    "Gate",
    "Guarded",
    "HookHandle",
    "Rubric",
    "RubricDict",
    "RubricList",
    "Sequential",
    "TrajectoryRubric",
    "WeightedSum",
    "as_rubric",
    "is_pending",
]
__all__ += checks.__all__
__all__.sort()

# These are imported when they are first used: most of them load pydantic.
__getattr__, _lazy = lazy_names(__name__, "composer", "ensemble", "functions", "judge", "sandboxed")


def __dir__() -> list[str]:
    return sorted([*__all__, *_lazy()])
