"""Ready-made checks of texts, answers, code and JSON.

Each reads the text of an action (`content`, or another field) and scores 1.0 or 0.0; only
`ToxicityRubric` grades, and there a higher score is worse. A wrong or unreadable answer scores 0.0
with a reason; an action without a text or an observation without a usable ground truth raises.
"""

from guerdon._lazy import lazy_names
from guerdon.rubrics.checks.answers import *
from guerdon.rubrics.checks.code import *
from guerdon.rubrics.checks.numeric import *
from guerdon.rubrics.checks.quantity import *
from guerdon.rubrics.checks.structured import *
from guerdon.rubrics.checks.text import *
from guerdon.rubrics.checks.toxicity import *

__getattr__, __dir__ = lazy_names(
    __name__, "answers", "code", "numeric", "quantity", "structured", "text", "toxicity"
)
