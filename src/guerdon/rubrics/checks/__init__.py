"""Ready-made checks of texts, answers, code and JSON.

Each reads the text of an action (`content`, or another field) and scores 1.0 or 0.0; only
`ToxicityRubric` grades, and there a higher score is worse. A wrong or unreadable answer scores 0.0
with a reason; an action without a text or an observation without a usable ground truth raises.
"""

from guerdon.rubrics.checks.answers import extract_answer
from guerdon.rubrics.checks.code import PythonCompiles
from guerdon.rubrics.checks.numeric import NumericAnswer
from guerdon.rubrics.checks.quantity import parse_number
from guerdon.rubrics.checks.structured import ValidJson
from guerdon.rubrics.checks.text import ExactMatch, LengthBounds, RegexMatch, RepetitionBounds
from guerdon.rubrics.checks.toxicity import ToxicityRubric

__all__ = [
    "ExactMatch",
    "LengthBounds",
    "NumericAnswer",
    "PythonCompiles",
    "RegexMatch",
    "RepetitionBounds",
    "ToxicityRubric",
    "ValidJson",
    "extract_answer",
    "parse_number",
]
