"""What a reward function gave, as `EvaluateResult`."""

from __future__ import annotations

import math
import reprlib
import traceback
from collections.abc import Mapping
from numbers import Real
from typing import Any

from pydantic import ValidationError

from guerdon.errors import RewardFunctionError
from guerdon.rubrics.failure import say_failure
from guerdon.types.evaluate_result import EvaluateResult, StepOutput

__all__ = ["failed", "result_of", "results_of"]

# Characters of an error that are kept.
MAX_ERROR = 10_000


def result_of(value: Any, name: str) -> EvaluateResult:
    """The result that a float, a dict or a result stands for.

    Args:
        value: What the function gave.
        name: The function's name, for the message.

    Raises:
        RewardFunctionError: It is nothing of these, or a number in it is not finite.
    """
    kind = type(value)
    if kind is float and math.isfinite(value):
        return EvaluateResult(score=value)
    if isinstance(value, EvaluateResult):
        _check(value, name)
        return value
    if isinstance(value, Mapping):
        return _validated(dict(value), name)
    if kind is not bool and isinstance(value, Real):
        return _validated({"score": value}, name)
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise RewardFunctionError(
            f"{name} gave an awaitable, but it isn't declared async; write `async def {name}`"
        )
    raise RewardFunctionError(
        f"{name} gave {reprlib.repr(value)} ({kind.__name__}); a reward function returns a finite "
        "float, a dict with 'score', or an EvaluateResult"
    )


def results_of(values: Any, count: int, name: str) -> list[EvaluateResult]:
    """The results that a batch function gave, one for each of `count` rollouts.

    One that is none makes its own rollout invalid, and no other.

    Raises:
        RewardFunctionError: It isn't a list of that many.
    """
    if callable(getattr(values, "tolist", None)):  # an array of scores
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        raise RewardFunctionError(
            f"{name} gave {reprlib.repr(values)} ({type(values).__name__}); a batch reward "
            "function returns a list with one result for each rollout"
        )
    if len(values) != count:
        raise RewardFunctionError(
            f"{name} gave {len(values)} results for {count} rollouts; it takes one for each"
        )
    results = []
    for number, value in enumerate(values):
        try:
            results.append(result_of(value, f"{name}[{number}]"))
        except RewardFunctionError as error:
            results.append(failed(error))
    return results


def failed(error: BaseException, file: str | None = None) -> EvaluateResult:
    """The invalid result of a function that raised.

    Args:
        error: What it raised.
        file: The function's file; the line in it is told.
    """
    said = say_failure(error)
    if len(said) > MAX_ERROR:
        said = f"{said[:MAX_ERROR]}… ({len(said):,} characters)"
    if file is not None:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == file
        ]
        if lines:
            said += f" (line {lines[-1]} of {file.rpartition('/')[2]})"
    return EvaluateResult(is_score_valid=False, error=said)


def _check(result: EvaluateResult, name: str) -> None:
    """Refuse what was put into a result past its validation, as by `model_construct`."""
    outputs = result.step_outputs or []
    wrong = next((each for each in outputs if not isinstance(each, StepOutput)), None)
    if wrong is not None:
        raise RewardFunctionError(
            f"{name} gave {reprlib.repr(wrong)} among the step outputs; it takes StepOutput"
        )
    for number in (result.score, *(output.base_reward for output in outputs)):
        if number is not None and (type(number) is not float or not math.isfinite(number)):
            raise RewardFunctionError(
                f"{name} gave {type(number).__name__} {reprlib.repr(number)}; "
                "a score is a finite float"
            )
    if result.is_score_valid and result.score is None:
        raise RewardFunctionError(f"{name} gave a valid result without a score")
    if not result.is_score_valid and result.error is None and result.reason is None:
        raise RewardFunctionError(f"{name} gave no valid score, and no error that says why")


def _validated(fields: dict[str, Any], name: str) -> EvaluateResult:
    try:
        result = EvaluateResult.model_validate(fields)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        text = problem["msg"].removeprefix("Value error, ")
        raise RewardFunctionError(
            f"{name} gave no result: " + (f"{where}: {text}" if where else text)
        ) from None
    _check(result, name)
    return result
