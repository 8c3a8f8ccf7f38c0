"""Scoring with a reward that runs in a sandbox, and never in this process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.function_scorer import FunctionScorer
from guerdon.rollouts.scoring.rows import ResultRow, failed_row
from guerdon.rollouts.scoring.scorers import refuse_parameters
from guerdon.sandbox.limits import Limits
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.rollout import Rollout

if TYPE_CHECKING:
    from guerdon.sandbox.evaluating.eval_sandbox import EvalSandbox

__all__ = ["SandboxScorer", "SandboxSettings"]


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Where a reward runs that isn't trusted.

    Example:
        >>> from guerdon import Limits
        >>> SandboxSettings(limits=Limits(seconds=10)).level
        'auto'

    Attributes:
        level: ``auto``, ``strict``, ``process``, or the name of a plug-in.
        limits: What each call may use.
        allow_read: Files and folders that the reward may read, beside itself and Python.

    Raises:
        InvalidArgumentError: The level is ``none``.
    """

    level: str = "auto"
    limits: Limits = field(default_factory=Limits)
    allow_read: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level == "none":
            raise InvalidArgumentError("level is 'none', which is no sandbox; leave it out")

    def open(self, spec: str, workers: int = 1) -> EvalSandbox:
        """Open the sandbox, and load a reward in it.

        Args:
            spec: The reward as ``module:name`` or ``file.py:name``.
            workers: How many calls run at the same time.

        Raises:
            LoadError: The reward can't be loaded.
            SandboxUnavailableError: The level doesn't work on this machine.
        """
        from guerdon.sandbox.evaluating.eval_sandbox import EvalSandbox

        return EvalSandbox(
            spec,
            level=self.level,
            workers=workers,
            limits=self.limits,
            allow_read=self.allow_read,
        )


class SandboxScorer(FunctionScorer):
    """Scores rollouts with a reward in a sandbox: a reward function, or a rubric.

    Rows are what they are without a sandbox; beside that they name its level, and hold what the
    reward printed. As many threads as the sandbox has workers may score at the same time.

    Args:
        settings: The sandbox; it is opened here, and closed with the scorer.
        spec: The reward as ``module:name`` or ``file.py:name``.
        parameters: What a reward function is given by name.
        workers: How many calls run at the same time.

    Raises:
        LoadError: The reward can't be loaded.
        SandboxUnavailableError: The level doesn't work on this machine.
        InvalidArgumentError: The reward takes no parameter of such a name.
    """

    def __init__(
        self,
        settings: SandboxSettings,
        spec: str,
        *,
        parameters: dict[str, Any] | None = None,
        workers: int = 1,
    ) -> None:
        self.settings = settings
        self.sandbox = settings.open(spec, workers)
        try:
            if self.sandbox.is_rubric:
                refuse_parameters(parameters)
            super().__init__(self.sandbox.function, parameters)
        except BaseException:
            self.sandbox.close()
            raise

    def __exit__(self, *error: Any) -> None:
        self.close()
        super().__exit__(*error)

    def close(self) -> None:
        """Close the sandbox; what runs in it ends at once, without a result."""
        self.sandbox.close()

    @property
    def described(self) -> dict[str, Any]:
        """What is in force, as JSON can hold it."""
        return {
            "level": self.sandbox.level,
            "promise": self.sandbox.promise,
            "limits": asdict(self.settings.limits),
            "allow_read": list(self.settings.allow_read),
        }

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that could not be read."""
        row = super().failed(error)
        return self._placed(failed_row(error, self.fingerprint) if self.sandbox.is_rubric else row)

    def _fingerprint(self) -> str:
        # The level and its limits don't change it: the reward is the same, and rows say the level.
        return self.function.fingerprint if self.sandbox.is_rubric else super()._fingerprint()

    def _row(self, rollout: Rollout, result: EvaluateResult) -> ResultRow:
        row = super()._row(rollout, result)
        if self.sandbox.is_rubric:  # which says no more of a step than its reward
            for name in ("reason", "notes", "steps", "metrics"):
                row.pop(name, None)  # type: ignore[misc]
            if not row["is_score_valid"]:
                row["step_rewards"] = None
        return self._placed(row)

    def _placed(self, row: ResultRow) -> ResultRow:
        row["sandbox"] = self.sandbox.level
        return row
