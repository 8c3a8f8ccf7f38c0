"""`EvaluateResult`: the result of a reward function for one rollout and its steps."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictStr,
    ValidationError,
    model_validator,
)

from guerdon.types.numbers import FiniteFloat, Index, Metrics

__all__ = ["EvaluateResult", "StepOutput"]

# The error of a result without a score, if it is given no reason.
NO_SCORE = "the evaluation gave no score"

RESULT_CONFIG = ConfigDict(extra="forbid", validate_assignment=True, ser_json_inf_nan="constants")


class StepOutput(BaseModel):
    """The result of a reward function for one step of a rollout.

    Example:
        >>> from guerdon import StepOutput
        >>> StepOutput(step_index=2, base_reward=-0.5, reason="booked without asking").base_reward
        -0.5

    Attributes:
        step_index: The index of the assistant turn in the conversation, from 0; or a string, the
            `StepData.step_info["step_id"]` of the step.
        base_reward: The step's own reward, a finite float.
        metrics: Further measurements.
        reason: The reason for the reward.
    """

    model_config = RESULT_CONFIG

    step_index: Index | StrictStr
    base_reward: FiniteFloat
    metrics: Metrics = Field(default_factory=dict)
    reason: str | None = None


class EvaluateResult(BaseModel):
    """The result of a reward function for one rollout.

    A failure is not a 0: it is a result without a valid score, with the error.

    Example:
        >>> from guerdon import EvaluateResult
        >>> EvaluateResult(score=1, reason="solved").score
        1.0
        >>> failed = EvaluateResult(error="the judge did not answer")
        >>> failed.score is None, failed.is_score_valid
        (True, False)

    Attributes:
        score: A finite float; None only if the result is invalid.
        is_score_valid: Whether the score counts; by default, whether there is one.
        reason: The reason for the score.
        metrics: Further measurements. Numbers among them are components of the score.
        step_outputs: The results for single steps, if any.
        error: The error message, if it failed. A result without a score, a reason and an error
            has the error "the evaluation gave no score".
        log: The output of the function in a sandbox, if it printed anything.
    """

    model_config = RESULT_CONFIG

    score: FiniteFloat | None = None
    is_score_valid: bool = True
    reason: str | None = None
    metrics: Metrics = Field(default_factory=dict)
    step_outputs: Annotated[list[StepOutput], Field(fail_fast=True)] | None = None
    error: str | None = None
    log: str | None = None

    @model_validator(mode="after")
    def _valid_has_score(self) -> Self:
        fields = self.__dict__  # faster than attributes: this runs for every result
        if (fields["score"] is None) == fields["is_score_valid"]:
            if "is_score_valid" not in self.model_fields_set:
                # Without validation, which would call this validator again.
                fields["is_score_valid"] = fields["score"] is not None
            elif fields["is_score_valid"]:
                raise ValueError(
                    "a valid result requires a score; without one, omit is_score_valid or set it "
                    "to False, with the error"
                )
        if fields["score"] is None:
            if fields["error"] is None and fields["reason"] is None:
                fields["error"] = NO_SCORE
        elif fields["error"] == NO_SCORE:  # the score was assigned later
            fields["error"] = None
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        before, given = dict(self.__dict__), set(self.model_fields_set)
        try:
            super().__setattr__(name, value)
        except ValidationError:  # undo the rejected assignment
            self.__dict__.clear()
            self.__dict__.update(before)
            self.__pydantic_fields_set__.intersection_update(given)
            raise
