"""Rubrics: small scores, and the tree that makes one reward of them."""

from guerdon.rubrics import checks
from guerdon.rubrics.checks import *
from guerdon.rubrics.collections import RubricDict, RubricList
from guerdon.rubrics.containers import Gate, Sequential, WeightedSum
from guerdon.rubrics.function import FunctionRubric, as_rubric
from guerdon.rubrics.guards import Guarded
from guerdon.rubrics.hooks import HookHandle
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

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
]
__all__ += checks.__all__
__all__.sort()
