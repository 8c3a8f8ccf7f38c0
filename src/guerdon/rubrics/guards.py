"""`Guarded`: a timeout, retries and an error policy around a rubric."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any

from guerdon._logging import step_logger
from guerdon._validation import check_choice, check_integer, check_seconds
from guerdon._work_clock import WorkClock, WorkTimeoutError
from guerdon.errors import GuardTimeoutError, InvalidArgumentError
from guerdon.rubrics import step_rewards
from guerdon.rubrics.containers import Container, with_zero
from guerdon.rubrics.evaluation import adaptive, run_async, score_child
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.recording import Frame, current, enter
from guerdon.rubrics.state import Checked

__all__ = ["Guarded"]

logger = step_logger("guerdon.rubrics")

POLICIES = ("raise", "zero", "minimum")
MAX_RETRIES = 100
# Calls of a sync rubric that exceeded the timeout and have not returned.
MAX_ABANDONED = 8


class Guarded(Container):
    """Limits the time of a rubric, retries it, and applies a policy if it fails.

    By default a failure is raised. With another policy the score still reports it: its
    `Score.status` is ``failed``, with the substituted value.

    A sync rubric with a timeout runs in a thread, which can't be stopped: after the timeout it
    is abandoned and runs on. What it then writes into an attribute of the rubric, such as a list
    that `reset` clears, changes the next episode: limit the time in the rubric itself if it
    remembers steps. Code that holds the interpreter lock, such as one long regular expression,
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
        timeout: Seconds that one attempt may take, above 0; None for no limit. The time that it
            waits for its turn in a queue of this library doesn't count: for a thread, for a model
            or a service whose `concurrency` is used up. Its own retries and pauses do.
        retries: How many more attempts follow a failure, 0 to 100.
        on_error: ``"raise"``; ``"zero"`` for 0.0; ``"minimum"`` for the low end of the rubric's
            declared `score_range`.

    Raises:
        InvalidArgumentError: An argument is outside what is accepted.
    """

    state_names = ("timeout", "retries", "on_error")
    timeout: Checked[float | None] = Checked(check_seconds, optional=True)
    retries = Checked(check_integer, low=0, high=MAX_RETRIES)

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
    def on_error(self) -> str:
        """What happens if the last attempt fails."""
        return self._on_error

    @on_error.setter
    def on_error(self, value: str) -> None:
        check_choice("on_error", value, POLICIES)
        if value == "minimum" and self._lowest() is None:
            raise InvalidArgumentError(
                f"`on_error` is 'minimum', but {self._children['rubric']._title()} "
                "declares no score_range"
            )
        self._on_error = value

    @adaptive
    async def forward(self, action: Any, observation: Any) -> float:
        """Evaluate the rubric within the limits."""
        frame = current()
        if frame is not None and frame.rubric is not self:  # it was called by itself
            frame = None
        for attempt in range(self.retries):
            try:
                return await self._attempt(frame, action, observation)
            except Exception as error:
                logger.info(
                    "%s failed, attempt %d of %d: %r",
                    self._only_child()._title(), attempt + 1, self.retries + 1, error,
                )  # fmt: skip
                if frame is not None:
                    frame.frames.clear()
                    frame.reason = None
        try:
            return await self._attempt(frame, action, observation)
        except Exception as error:
            return self._substitute(frame, error)

    def _substitute(self, frame: Frame | None, error: Exception) -> float:
        """Return the score of a rubric whose last attempt failed, or raise."""
        substitute = 0.0 if self._on_error == "zero" else None
        if self._on_error == "minimum":
            substitute = self._lowest()
        if substitute is None:
            raise error
        logger.warning(
            "%s failed; its score is %s: %r", self._only_child()._title(), self._on_error, error
        )
        if frame is not None:
            frame.error = error
            frame.reason = f"on_error={self._on_error!r}"
        return substitute

    def _lowest(self) -> float | None:
        """The low end of the rubric's declared range; None if it declares none."""
        declared = self._only_child()._range()
        return declared[0] if declared is not None else None

    async def _attempt(self, frame: Frame | None, action: Any, observation: Any) -> float:
        child = self._only_child()
        if self.timeout is None:
            return await score_child(self, child, action, observation)
        if frame is None or not frame.awaits:
            return self._attempt_in_thread(frame, self.timeout, action, observation)
        import anyio

        # Only a thread leaves the loop free to watch the time.
        limiter = frame.limiter or anyio.CapacityLimiter(1)
        with WorkClock.limiting(self.timeout) as clock:
            try:
                return await clock.limit(
                    partial(run_async, child, frame, action, observation, limiter)
                )
            except WorkTimeoutError:
                late = frame.frames[-1].error = self._late(self.timeout)
        raise late

    def _attempt_in_thread(
        self, frame: Frame | None, seconds: float, action: Any, observation: Any
    ) -> float:
        """Call the rubric in a thread that is abandoned after some seconds."""
        child = self._only_child()
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= MAX_ABANDONED:
            raise GuardTimeoutError(
                f"{MAX_ABANDONED} earlier calls of {child._title()} exceeded the timeout and are "
                "still running; no more are started",
                seconds=seconds,
            )
        # A frame of its own: a call that returns too late must not write into a score.
        scratch = Frame(self, None, observation)
        scratch.step = frame.step if frame is not None else None
        outcome: Future[float] = Future()

        def call() -> None:
            enter(scratch)
            try:
                outcome.set_result(child(action, observation))
            except BaseException as error:
                outcome.set_exception(error)

        with WorkClock.limiting(seconds) as clock:
            thread = threading.Thread(target=copy_context().run, args=(call,), daemon=True)
            thread.start()
            while thread.is_alive() and (left := clock.left()) > 0:
                thread.join(left)
        if outcome.done():
            frames = scratch.frames
        else:
            self._abandoned.append(thread)
            late = Frame(child, None, observation)
            late.error, late.seconds = self._late(seconds), seconds
            frames, outcome = [late], Future()
            outcome.set_exception(late.error)
        if frame is not None:
            frame.frames.extend(frames)
        return outcome.result()

    def _late(self, seconds: float) -> GuardTimeoutError:
        return GuardTimeoutError(
            f"{self._only_child()._title()} took longer than {seconds:g} s", seconds=seconds
        )

    def _range(self) -> tuple[float, float] | None:
        declared = self._only_child()._range() if self._children else None
        return with_zero(declared) if self._on_error == "zero" else declared

    def _needs(self, name: str) -> str | None:
        limits = [f"within {self.timeout:g} s"] if self.timeout is not None else []
        limits += [f"{self.retries} retries"] if self.retries else []
        return ", ".join([*limits, f"on error: {self._on_error}"])

    def _rewards_by_step(self) -> dict[int, float]:
        steps = step_rewards.stamps(self)
        scores = step_rewards.scores_at(self, steps)
        substitutes = {stamp: scores[stamp] for stamp in steps if step_rewards.failed(self, stamp)}
        if steps and steps[-1] in substitutes:  # which is also the score of the episode
            return scores
        rewards = step_rewards.by_step(self._only_child())
        return {**step_rewards.on(steps, rewards), **substitutes}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_abandoned": []}
