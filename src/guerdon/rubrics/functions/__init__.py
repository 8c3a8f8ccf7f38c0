"""Rewards that users write: functions of messages, and files that contain a reward."""

from guerdon._lazy import lazy_names
from guerdon.rubrics.functions.conversion import *
from guerdon.rubrics.functions.function import *
from guerdon.rubrics.functions.loading import *
from guerdon.rubrics.functions.placement import *
from guerdon.rubrics.functions.rubric import *

__getattr__, __dir__ = lazy_names(
    __name__, "conversion", "function", "loading", "placement", "rubric"
)
