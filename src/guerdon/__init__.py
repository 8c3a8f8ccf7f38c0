"""guerdon: rewards as trees of small rubrics, with every number traceable.

Names are imported where they are first used, so that ``import guerdon`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon.models.message import Message
    from guerdon.models.rollout import Action, Observation, Rollout
    from guerdon.models.score import Score
    from guerdon.rubrics import (
        ExactMatch,
        ExponentialDiscountingTrajectoryRubric,
        FunctionRubric,
        Gate,
        Guarded,
        HookHandle,
        LengthBounds,
        NumericAnswer,
        PythonCompiles,
        RegexMatch,
        RepetitionBounds,
        Rubric,
        RubricDict,
        RubricList,
        Sequential,
        ToxicityRubric,
        TrajectoryRubric,
        ValidJson,
        WeightedSum,
        as_rubric,
    )

__version__ = "0.1.0"
