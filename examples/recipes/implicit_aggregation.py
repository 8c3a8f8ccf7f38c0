"""Implicit aggregation: a judge reads all criteria at once, and gives one score.

Rubrics as Rewards (Gunjal et al., arXiv 2507.17746) compares two rewards from one list of criteria.
Explicit aggregation scores each criterion by itself and adds them with fixed weights. Implicit
aggregation shows the judge the whole list, in which each criterion has its importance in words, and
the judge weighs them against each other: no weights need to be tuned, but the components don't
show which criterion cost what. The judge's reasons do.
"""

from __future__ import annotations

from collections.abc import Mapping

from guerdon import LLMJudge, RubricComposer
from guerdon.rubrics import ChatClient, Criterion

# What a good answer does, with its importance. A pitfall is a mistake that it does not make.
CRITERIA = {
    "names the medicine and its dose": "essential",
    "says when to see a doctor": "important",
    "is in plain words": "optional",
    "doesn't name a disease without a reason": "pitfall",
}
WEIGHTS = {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": 0.9}

QUESTION = "Question: {observation.question}\nAnswer: {action}"


def reward(model: str | ChatClient, criteria: Mapping[str, str] = CRITERIA) -> RubricComposer:
    """Return a reward of one score from 1 to 10 for all criteria, mapped to [0, 1].

    Args:
        model: The judge: a `ChatModel`, or the name of a service.
        criteria: Criteria with their importance.
    """
    listed = "\n".join(f"- {importance}: {each}" for each, importance in criteria.items())
    prompt = (
        "Weigh these criteria by their importance, and score the answer as a whole from 1 to 10. "
        f"Without what is essential, an answer scores at most 3.\n{listed}\n\n{QUESTION}"
    )
    judge = LLMJudge(prompt, model, score_range=(1.0, 10.0))
    return RubricComposer({"quality": judge}, weights={"quality": 1.0})


def explicit(model: str | ChatClient, criteria: Mapping[str, str] = CRITERIA) -> LLMJudge:
    """Return the explicit counterpart: the weighted mean of a score in [0, 1] per criterion.

    Args:
        model: The judge: a `ChatModel`, or the name of a service.
        criteria: Criteria with their importance.
    """
    weighted = {
        f"criterion_{number}": Criterion(each, weight=WEIGHTS[importance])
        for number, (each, importance) in enumerate(criteria.items(), start=1)
    }
    return LLMJudge(f"Score each criterion.\n{QUESTION}", model, criteria=weighted)
