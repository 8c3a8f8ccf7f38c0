"""Ready-made checks of texts, answers, code, JSON, tool calls and the world's state.

Most read the text of an action (`content`, or another field) and score 1.0 or 0.0; of those only
`ToxicityRubric` grades, and there a higher score is worse. `CalledTool`, `ToolErrors` and
`CallBudget` read the tool calls, `StateMatches` the state of the world. A wrong or unreadable
answer scores 0.0 with a reason; an action without a text or tool calls, or an observation without a
usable ground truth or state, raises.
"""

from guerdon._lazy import lazy_names
from guerdon.rubrics.checks.answers import *
from guerdon.rubrics.checks.choice import *
from guerdon.rubrics.checks.code import *
from guerdon.rubrics.checks.mathematics import *
from guerdon.rubrics.checks.numeric import *
from guerdon.rubrics.checks.quantity import *
from guerdon.rubrics.checks.structured import *
from guerdon.rubrics.checks.text import *
from guerdon.rubrics.checks.tool_use import *
from guerdon.rubrics.checks.toxicity import *
from guerdon.rubrics.checks.world_state import *

__getattr__, __dir__ = lazy_names(
    __name__,
    *("answers", "choice", "code", "mathematics", "numeric", "quantity", "structured", "text"),
    *("tool_use", "toxicity", "world_state"),
)
