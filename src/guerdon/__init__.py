"""guerdon: rewards as trees of small rubrics, with every number traceable.

Names are imported where they are first used, so that ``import guerdon`` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon import credit as credit
    from guerdon.envs import *
    from guerdon.errors import *
    from guerdon.functions import *
    from guerdon.models import *
    from guerdon.rewards import *
    from guerdon.rollouts import *
    from guerdon.rubrics import *
    from guerdon.sandbox import *
    from guerdon.services import *

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    "rubrics",
    "errors",
    "models",
    "functions",
    "sandbox",
    "rollouts",
    "services",
    "rewards",
    "envs",
    namespaces=("credit",),
)
