"""`EvaluateResult`: what a reward function says about one rollout, and about its steps."""

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


class StepOutput(BaseModel):
    """What a reward function says about one step of a rollout.

    Example:
        >>> from guerdon import StepOutput
        >>> StepOutput(step_index=2, base_reward=-0.5, reason="booked without asking").base_reward
        -0.5

    Attributes:
        step_index: Which step: the number of the assistant turn in the conversation, from 0; or a
            string, which is the `StepData.step_info["step_id"]` of the step that is meant.
        base_reward: The step's own reward, a finite float.
        metrics: What else was measured of it.
        reason: Why, in words.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, ser_json_inf_nan="constants"
    )

    step_index: Index | StrictStr
    base_reward: FiniteFloat
    metrics: Metrics = Field(default_factory=dict)
    reason: str | None = None


class EvaluateResult(BaseModel):
    """What a reward function says about one rollout.

    A failure is no zero: a result that has no valid score says so, with the error.

    Example:
        >>> from guerdon import EvaluateResult
        >>> EvaluateResult(score=1, reason="solved").score
        1.0
        >>> failed = EvaluateResult(error="the judge did not answer")
        >>> failed.score is None, failed.is_score_valid
        (True, False)

    Attributes:
        score: A finite float; None only where the result is invalid.
        is_score_valid: Whether the score counts. Left out, it does where there is one.
        reason: Why, in words.
        metrics: What else was measured. Numbers among them are components of the score.
        step_outputs: What is said of single steps; None where nothing is.
        error: What went wrong, in words.
        log: What the function printed, where it ran in a sandbox; None where it printed nothing.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, ser_json_inf_nan="constants"
    )

    score: FiniteFloat | None = None
    is_score_valid: bool = True
    reason: str | None = None
    metrics: Metrics = Field(default_factory=dict)
    step_outputs: Annotated[list[StepOutput], Field(fail_fast=True)] | None = None
    error: str | None = None
    log: str | None = None

    @model_validator(mode="after")
    def _valid_has_score(self) -> Self:
        if "is_score_valid" not in self.model_fields_set:
            # Past validation, which would come here again.
            self.__dict__["is_score_valid"] = self.score is not None
        elif self.score is None and self.is_score_valid:
            raise ValueError(
                "a valid result has a score; where there is none, leave is_score_valid out "
                "or say False, with the error"
            )
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        before, given = dict(self.__dict__), set(self.model_fields_set)
        try:
            super().__setattr__(name, value)
        except ValidationError:  # what is refused doesn't stay
            self.__dict__.clear()
            self.__dict__.update(before)
            self.__pydantic_fields_set__.intersection_update(given)
            raise
