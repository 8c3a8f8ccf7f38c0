"""`Guarded`: a timeout, retries and an error policy around a rubric."""

from __future__ import annotations

import contextvars
import logging
import threading
from time import perf_counter
from typing import Any

import anyio

from guerdon.errors import GuardTimeoutError, InvalidArgumentError
from guerdon.rubrics import frames, step_rewards
from guerdon.rubrics.containers import Container, finite_argument
from guerdon.rubrics.frames import Frame, current
from guerdon.rubrics.function import RubricLike, as_rubric

__all__ = ["Guarded"]

logger = logging.getLogger("guerdon.rubrics")

POLICIES = ("raise", "zero", "minimum")
MAX_RETRIES = 100
# Calls of a sync rubric that ran into the timeout and have not come back.
MAX_ABANDONED = 8


class Guarded(Container):
    """Limits the time of a rubric, tries it again, and says what to do when it fails.

    By default a failure is raised. Another policy is a person's own word, and the score still
    tells the failure: its `Score.status` is ``failed``, with the value that was put in.

    A sync rubric with a timeout runs in a thread, which can't be stopped: after the timeout it
    goes on by itself. Code that holds the interpreter lock, such as one long regular expression,
    can't be timed out that way.

    Example:
        >>> from guerdon import Guarded
        >>> def broken(action, observation):
        ...     raise ConnectionError("the judge is down")
        >>> score = Guarded(broken, retries=2, on_error="zero").score("a", "o")
        >>> score.value, score.status, score.error
        (0.0, 'failed', 'ConnectionError: the judge is down')

    Args:
        rubric: A rubric or a function.
        timeout: Seconds that one try may take, over 0; None for no limit.
        retries: How many more times to try after a failure, 0 to 100.
        on_error: ``"raise"``; ``"zero"`` for 0.0; ``"minimum"`` for the low end of the rubric's
            declared `score_range`.

    Raises:
        InvalidArgumentError: An argument is outside what is accepted.
    """

    state_names = ("timeout", "retries", "on_error")

    def __init__(
        self,
        rubric: RubricLike,
        timeout: float | None = None,
        retries: int = 0,
        on_error: str = "raise",
    ) -> None:
        super().__init__()
        self.rubric = as_rubric(rubric)
        self._abandoned: list[threading.Thread] = []
        self.timeout = timeout
        self.retries = retries
        self.on_error = on_error

    @property
    def timeout(self) -> float | None:
        """Seconds that one try may take."""
        return self._timeout

    @timeout.setter
    def timeout(self, value: float | None) -> None:
        seconds = None if value is None else finite_argument(value, "Guarded.timeout")
        if seconds is not None and seconds <= 0:
            raise InvalidArgumentError(f"Guarded.timeout is {value!r}; it takes seconds over 0")
        self._timeout = seconds

    @property
    def retries(self) -> int:
        """How many more times to try after a failure."""
        return self._retries

    @retries.setter
    def retries(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RETRIES:
            raise InvalidArgumentError(
                f"Guarded.retries is {value!r}; it takes an int from 0 to {MAX_RETRIES}"
            )
        self._retries = value

    @property
    def on_error(self) -> str:
        """What to do when the last try failed."""
        return self._on_error

    @on_error.setter
    def on_error(self, value: str) -> None:
        if value not in POLICIES:
            raise InvalidArgumentError(f"Guarded.on_error is {value!r}; it takes one of {POLICIES}")
        if value == "minimum" and self._low() is None:
            raise InvalidArgumentError(
                f"Guarded.on_error is 'minimum', but {self._children['rubric']._title()} "
                "declares no score_range"
            )
        self._on_error = value

    def forward(self, action: Any, observation: Any) -> float:
        """Evaluate the rubric, within the limits."""
        for tried in range(self._retries + 1):
            try:
                return self._try(action, observation)
            except Exception as error:
                self._failed(error, tried)
        return self._instead()

    async def _evaluate_async(self, frame: Frame, action: Any, observation: Any) -> float:
        for tried in range(self._retries + 1):
            try:
                return await self._try_async(frame, action, observation)
            except Exception as error:
                self._failed(error, tried)
        return self._instead()

    def _failed(self, error: Exception, tried: int) -> None:
        """After a failed try: raise, or keep the failure and let the caller go on."""
        frame = current()
        name = self._only_child()._title()
        if tried < self._retries:
            logger.info("%s failed, try %d of %d: %r", name, tried + 1, self._retries + 1, error)
            if frame is not None and frame.rubric is self:
                frame.entries.clear()
                frame.reason = None
            return
        if self._on_error == "raise" or (self._on_error == "minimum" and self._low() is None):
            raise error
        logger.warning("%s failed; its score is %s: %r", name, self._on_error, error)
        if frame is not None and frame.rubric is self:
            frame.error = error
            frame.reason = f"on_error={self._on_error!r}"

    def _instead(self) -> float:
        return (self._low() or 0.0) if self._on_error == "minimum" else 0.0

    def _low(self) -> float | None:
        """The low end of what the rubric declares; None where it declares nothing."""
        declared = self._only_child()._range()
        return declared[0] if declared is not None else None

    def _late(self) -> GuardTimeoutError:
        assert self._timeout is not None
        return GuardTimeoutError(
            f"{self._children['rubric']._title()} took longer than {self._timeout:g} s",
            seconds=self._timeout,
        )

    def _try(self, action: Any, observation: Any) -> float:
        child = self._only_child()
        if self._timeout is None:
            score: float = child(action, observation)
            return score
        # A frame of its own: a call that comes back too late must not write into a score.
        outer = current()
        scratch = None
        if outer is not None and outer.rubric is self:
            scratch = Frame(self)
            scratch.step = outer.step
        outcome: list[Any] = []

        def run() -> None:
            token = frames.enter(scratch)
            try:
                outcome.append((child(action, observation), None))
            except BaseException as error:
                outcome.append((None, error))
            finally:
                frames.leave(token)

        start = perf_counter()
        self._run(run)
        if not outcome:
            late = self._late()
            if outer is not None and scratch is not None:
                frame = Frame(child)
                frame.error = late
                outer.entries.append((child, None, perf_counter() - start, frame))
            raise late
        if outer is not None and scratch is not None:
            outer.entries.extend(scratch.entries)
        result, error = outcome[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _run(self, run: Any) -> None:
        """Run in a thread that may be left behind, for as long as the timeout says."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= MAX_ABANDONED:
            raise GuardTimeoutError(
                f"{MAX_ABANDONED} earlier calls of {self._children['rubric']._title()} ran into "
                "the timeout and are still running; no more are started",
                seconds=self._timeout or 0.0,
            )
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(run,), daemon=True)
        thread.start()
        thread.join(self._timeout)
        if thread.is_alive():
            self._abandoned.append(thread)

    async def _try_async(self, frame: Frame, action: Any, observation: Any) -> float:
        from guerdon.rubrics.concurrency import evaluate_child
        from guerdon.rubrics.evaluation import run_async

        child = self._only_child()
        if self._timeout is None:
            return await evaluate_child(frame, child, action, observation)
        # Only a thread leaves the loop free to look at the clock.
        limiter = frame.limiter or anyio.CapacityLimiter(1)
        with anyio.move_on_after(self._timeout) as scope:
            return await run_async(child, frame, action, observation, limiter)
        assert scope.cancelled_caught
        late = self._late()
        frame.entries[-1][3].error = late
        raise late

    def _range(self) -> tuple[float, float] | None:
        declared = self._only_child()._range() if self._children else None
        if declared is None or self._on_error != "zero":
            return declared
        return min(0.0, declared[0]), max(0.0, declared[1])

    def _needs(self, name: str) -> str | None:
        limits = [f"within {self._timeout:g} s"] if self._timeout is not None else []
        limits += [f"{self._retries} retries"] if self._retries else []
        return ", ".join([*limits, f"on error: {self._on_error}"])

    def _rewards_by_step(self) -> dict[int, float]:
        child, steps = self._only_child(), step_rewards.stamps(self)
        if steps and step_rewards.failed(child, steps[-1]):  # what this gave in its place counts
            return step_rewards.given(self, steps)
        return step_rewards.on(steps, step_rewards.by_step(child))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_abandoned": []}
