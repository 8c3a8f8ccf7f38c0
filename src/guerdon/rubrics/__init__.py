"""Rubrics: small scores, and the tree that makes one reward of them."""

from guerdon.rubrics.checks import (
    ExactMatch,
    LengthBounds,
    NumericAnswer,
    PythonCompiles,
    RegexMatch,
    RepetitionBounds,
    ToxicityRubric,
    ValidJson,
)
from guerdon.rubrics.collections import RubricDict, RubricList
from guerdon.rubrics.containers import Gate, Sequential, WeightedSum
from guerdon.rubrics.function import FunctionRubric, as_rubric
from guerdon.rubrics.guards import Guarded
from guerdon.rubrics.hooks import HookHandle
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

__all__ = [
    "ExactMatch",
    "ExponentialDiscountingTrajectoryRubric",
    "FunctionRubric",
    "Gate",
    "Guarded",
    "HookHandle",
    "LengthBounds",
    "NumericAnswer",
    "PythonCompiles",
    "RegexMatch",
    "RepetitionBounds",
    "Rubric",
    "RubricDict",
    "RubricList",
    "Sequential",
    "ToxicityRubric",
    "TrajectoryRubric",
    "ValidJson",
    "WeightedSum",
    "as_rubric",
]
