"""`CodingEnvironment`: an agent writes a program, and may try again."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from examples.coding_env.models import CodeAction, CodeObservation, CodeState
from examples.coding_env.rubrics import reward
from examples.coding_env.runner import run_tests
from examples.coding_env.shared_sandbox import SharedSandbox
from examples.coding_env.tasks import Task, load_tasks
from guerdon import Environment, Limits, Rubric, Sandbox
from guerdon.errors import EpisodeError, InvalidArgumentError, SandboxError, SandboxUnavailableError
from guerdon.sandbox import Verdict

__all__ = ["CodingEnvironment"]

# Beside the first failure, which may have been another.
CUT = {
    "timeout": "stopped: out of time",
    "memory": "out of memory",
    "output_limit": "stopped: too much output",
    "nonzero": "its process ended early",
    "signal": "its process ended early",
}


@functools.cache
def _shared(level: str) -> SharedSandbox:
    """That of a level; it is opened when an environment needs it first."""
    return SharedSandbox(level)


class CodingEnvironment(Environment[CodeAction, CodeObservation, CodeState]):
    """Write a program that passes hidden tests, with a few submissions for it.

    Example:
        >>> from examples.coding_env.environment import CodingEnvironment
        >>> from examples.coding_env.models import CodeAction
        >>> environment = CodingEnvironment(sandbox="process")  # for programs that are known
        >>> first = environment.reset(task=0)
        >>> broken = environment.step(CodeAction(program="def"))
        >>> broken.feedback
        'The program does not compile: line 1: invalid syntax'
        >>> broken.reward, broken.done, broken.submissions_left
        (0.0, False, 4)
        >>> environment.close()

    Args:
        tasks: What an episode is drawn from; by default `load_tasks()`.
        max_submissions: How many programs an agent may submit in an episode, at least 1.
        limits: What each program may use.
        sandbox: Where programs run: one that is open, which stays so, or the level of one of its
            own, which all environments of this process share. ``"auto"`` holds what is written to
            do harm, or refuses.
        rubric: The reward; by default `reward()`.

    Raises:
        InvalidArgumentError: There is no task, two have the same id, or an agent could submit
            nothing.
    """

    def __init__(
        self,
        tasks: Iterable[Task] | None = None,
        *,
        max_submissions: int = 5,
        limits: Limits | None = None,
        sandbox: Sandbox | str = "auto",
        rubric: Rubric | None = None,
    ) -> None:
        super().__init__(rubric=rubric or reward())
        self.tasks = load_tasks() if tasks is None else tuple(tasks)
        self.limits = limits or Limits()
        self._numbers = {task.id: number for number, task in enumerate(self.tasks)}
        if not self.tasks or len(self._numbers) < len(self.tasks):
            raise InvalidArgumentError(
                f"CodingEnvironment takes at least one task, each with an id of its own; "
                f"there are {len(self.tasks)} tasks and {len(self._numbers)} ids"
            )
        if max_submissions < 1:
            raise InvalidArgumentError(f"max_submissions is {max_submissions}; it is at least 1")
        self.max_submissions = max_submissions
        self._sandbox = _shared(sandbox) if isinstance(sandbox, str) else sandbox
        self._taken: Sandbox | None = None
        self._task: Task | None = None
        self._over = True
        self._state = CodeState(max_submissions=max_submissions)

    def close(self) -> None:
        """Let go of the sandbox, where it is shared with other environments."""
        if self._taken is not None and isinstance(self._sandbox, SharedSandbox):
            self._sandbox.give_back()
            self._taken = None

    @property
    def state(self) -> CodeState:
        """Where the episode stands."""
        return self._state

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        task: int | str | None = None,
        **kwargs: Any,
    ) -> CodeObservation:
        """Begin an episode with a task.

        Args:
            seed: Chooses the task, always the same one; without it, chance does.
            episode_id: What to call the episode.
            task: The task's number, from 0, or its id; it counts more than the seed.
            **kwargs: Nothing else is taken.

        Returns:
            The task.

        Raises:
            InvalidArgumentError: There is no such task.
        """
        if kwargs:
            raise InvalidArgumentError(
                f"CodingEnvironment.reset takes seed, episode_id and task, not {sorted(kwargs)}"
            )
        chosen = self._choose(seed) if task is None else self._find(task)
        self._reset_rubric()
        self._task, self._over = chosen, False
        self._state = CodeState(
            episode_id=episode_id or uuid4().hex,
            task_id=chosen.id,
            difficulty=chosen.difficulty,
            max_submissions=self.max_submissions,
        )
        return self._observe(chosen)

    def step(
        self, action: CodeAction, timeout_s: float | None = None, **kwargs: Any
    ) -> CodeObservation:
        """Run a submission against the hidden tests, once, and score it.

        Args:
            action: The program.
            timeout_s: At most how long it may run, in seconds, where that is less than the limit.
            **kwargs: Nothing else is taken; ignored.

        Returns:
            What came of it. The episode is done when all tests pass or nothing is left to submit.

        Raises:
            EpisodeError: No episode is running.
            SandboxUnavailableError: The sandbox's level doesn't work on this machine.
            InvalidArgumentError: `timeout_s` isn't above 0.
        """
        task = self._running()
        limits = self.limits
        if timeout_s is not None:
            if not timeout_s > 0:
                raise InvalidArgumentError(f"timeout_s is {timeout_s}; it is above 0")
            limits = replace(limits, seconds=min(limits.seconds, timeout_s))
        verdict: Verdict | SandboxError
        try:
            verdict = run_tests(self._opened(), action.program, task, limits)
        except SandboxUnavailableError:
            raise
        except SandboxError as error:
            verdict = error
        self._state.step_count += 1
        if isinstance(verdict, Verdict):
            self._state.best = max(self._state.best, verdict.fraction)
            self._state.solved = verdict.passed == verdict.total
        self._over = self._state.solved or self._state.step_count >= self.max_submissions
        return self.score(action, self._observe(task, verdict))

    def _opened(self) -> Sandbox:
        if not isinstance(self._sandbox, SharedSandbox):
            return self._sandbox
        if self._taken is None:
            self._taken = self._sandbox.take()
        return self._taken

    def _choose(self, seed: int | None) -> Task:
        if seed is not None and seed < 0:
            raise InvalidArgumentError(f"seed is {seed}; it is at least 0")
        return random.Random(seed).choice(self.tasks)

    def _find(self, task: int | str) -> Task:
        number = self._numbers.get(task) if isinstance(task, str) else task
        if type(number) is int and 0 <= number < len(self.tasks):
            return self.tasks[number]
        raise InvalidArgumentError(
            f"there is no task {task!r:.80}; task is a number from 0 to {len(self.tasks) - 1} "
            f"or an id such as {self.tasks[0].id!r}"
        )

    def _running(self) -> Task:
        if self._task is None:
            raise EpisodeError("no episode is running; call reset() before step()")
        if self._over:
            why = "is solved" if self._state.solved else "has used up its submissions"
            raise EpisodeError(f"the episode {why}; call reset() to begin another")
        return self._task

    def _observe(
        self, task: Task, verdict: Verdict | SandboxError | None = None
    ) -> CodeObservation:
        observation = CodeObservation(
            task_id=task.id,
            prompt=task.prompt,
            entry_point=task.entry_point,
            difficulty=task.difficulty,
            starter=task.starter,
            submissions_left=self.max_submissions - self._state.step_count,
            done=self._over,
        )
        if isinstance(verdict, Verdict):
            observation._verdict = verdict
            observation.feedback = _say(verdict)
            observation.passed, observation.total = verdict.passed, verdict.total
        elif verdict is not None:
            observation._failure = verdict
            observation.feedback = "The program could not be run; that is not its fault."
        return observation


def _say(verdict: Verdict) -> str:
    """A verdict as the agent reads it."""
    if not verdict.compiled:
        return f"The program does not compile: {verdict.compile_error}"
    if verdict.passed == verdict.total:
        return f"All {verdict.total} tests passed."
    said = f"{verdict.passed} of {verdict.total} tests passed. First failure: {verdict.failure}"
    return f"{said} ({CUT[verdict.ended]})" if verdict.ended in CUT else said
