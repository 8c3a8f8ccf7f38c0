"""`check_environment`: what an author runs first."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from guerdon.envs.check_report import CheckLine, EnvironmentReport
from guerdon.envs.comparison import difference
from guerdon.envs.driver import Driver, make
from guerdon.envs.sampling import sample_actions
from guerdon.envs.scoring import COMPONENTS, ERROR
from guerdon.envs.server.messages import observation_json, state_json
from guerdon.errors import (
    EnvError,
    EnvTimeoutError,
    EpisodeError,
    GuerdonError,
    InvalidArgumentError,
)
from guerdon.models.action import Action
from guerdon.models.observation import Observation
from guerdon.models.state import State
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import TrajectoryRubric

__all__ = ["check_environment"]

# What was seen in an episode: after the reset and after each step, the observation and the state.
Trace = list[dict[str, Any]]

# An id that environments may show: always the same one, so that it tells nothing of chance.
EPISODE = "check"


def check_environment(
    env: Callable[[], Any],
    *,
    actions: Sequence[Action | Mapping[str, Any]] | None = None,
    seed: int = 0,
    steps: int = 20,
    timeout_s: float = 60.0,
) -> EnvironmentReport:
    """Look for what makes an environment unfit for training.

    A missing rubric; a reward outside its declared range; a seed that doesn't make it repeatable;
    an observation that doesn't survive JSON; state that two instances share; a reset that keeps
    the old trajectory; a step after the end that is neither refused nor documented.

    Example:
        >>> from guerdon import Action, Environment, Observation, RegexMatch, State
        >>> class Say(Action):
        ...     content: str
        >>> class Polite(Environment[Say, Observation, State]):
        ...     after_done = "each step is an episode of its own"
        ...     def __init__(self):
        ...         super().__init__(rubric=RegexMatch("please"))
        ...     def reset(self, seed=None):
        ...         return Observation()
        ...     def step(self, action):
        ...         return self.score(action, Observation(done=True))
        ...     state = State()
        >>> check_environment(Polite).ok
        True

    Args:
        env: An environment class, or a function that makes one.
        actions: What to play, again and again; by default made up from the action class.
        seed: What to reset with.
        steps: How many steps to play at most.
        timeout_s: Seconds that each call may take.

    Returns:
        A line for each check. What the environment raises is told there, not raised.
    """
    checks = _Checks(env, seed, timeout_s)
    try:
        checks.run(actions, steps)
    except _StopChecks:
        pass  # the report says why there is no going on
    finally:
        checks.close()
    return checks.report


class _StopChecks(Exception):
    """Without this, nothing further can be looked at."""


class _Checks:
    def __init__(self, env: Callable[[], Any], seed: int, timeout_s: float) -> None:
        self.report = EnvironmentReport()
        self._env = env
        self._seed = seed
        self._timeout_s = timeout_s
        self._made: list[Driver] = []
        self._actions: list[Action] = []
        self._made_up = False
        self._trace: Trace = []
        self._observations: list[Observation] = []

    def run(self, actions: Sequence[Action | Mapping[str, Any]] | None, steps: int) -> None:
        """Every check, each of which needs those before it."""
        first = self._attempt("it can be made, with a rubric", self._new)
        self._made_up = actions is None
        self._actions = self._attempt(
            "there are actions to try", partial(_actions, first, actions, steps, self._seed)
        )
        self._trace = self._attempt(
            "an episode can be played", partial(self._first_play, first, steps)
        )
        self._rewards()
        self._range(first)
        self._json()
        self._forgets(first)
        self._repeatable(first)
        self._apart()
        self._after_done(first)

    def close(self) -> None:
        """Close what was made; an environment that can't be closed has a problem."""
        for driver in self._made:
            try:
                self._call(driver.close)
            except Exception as error:
                self._line("it can be closed", "problem", _said(error))
                return

    def _new(self) -> Driver:
        driver: Driver = self._call(partial(make, self._env))
        self._made.append(driver)
        return driver

    def _play(self, driver: Driver) -> Trace:
        """Play an episode; what was seen, as JSON would hold it."""
        observation = self._reset(driver)
        trace = [self._seen(driver, observation)]
        for action in self._actions:
            if observation.done:
                break
            observation = self._step(driver, action)
            trace.append(self._seen(driver, observation))
        return trace

    def _seen(self, driver: Driver, observation: Observation) -> dict[str, Any]:
        state: State = self._call(driver.state)
        state_json(state)
        told = state.model_dump(exclude={"episode_id"})
        return {"observation": observation.model_dump(), "state": told}

    def _first_play(self, driver: Driver, steps: int) -> Trace:
        """Play an episode, leaving out actions that the environment refuses."""
        observation = self._reset(driver)
        trace = [self._seen(driver, observation)]
        seen = [observation.model_copy(deep=True)]
        taken: list[Action] = []
        refused: Exception | None = None
        for action in self._actions:
            if observation.done or len(taken) == steps:
                break
            try:
                observation = self._step(driver, action)
            except InvalidArgumentError as error:
                refused = error
                continue
            taken.append(action)
            seen.append(observation.model_copy(deep=True))
            trace.append(self._seen(driver, observation))
        if not taken and refused is not None:
            raise refused
        self._actions, self._observations = taken, seen
        return trace

    def _reset(self, driver: Driver) -> Observation:
        if driver.reset_is_async:
            return self._call(partial(_run, driver.reset_async, self._seed, EPISODE))  # type: ignore[no-any-return]
        return self._call(partial(driver.reset, self._seed, EPISODE))  # type: ignore[no-any-return]

    def _step(self, driver: Driver, action: Action) -> Observation:
        if driver.step_is_async:
            return self._call(partial(_run, driver.step_async, action))  # type: ignore[no-any-return]
        return self._call(partial(driver.step, action))  # type: ignore[no-any-return]

    # The checks -----------------------------------------------------------------------------------

    def _rewards(self) -> None:
        name = "every step has a reward"
        for number, seen in enumerate(self._steps()):
            if ERROR in seen["metadata"]:
                self._line(name, "problem", f"step {number}: {seen['metadata'][ERROR]}")
                return
            if seen["reward"] is None:
                said = f"step {number} has none; return self.score(action, observation)"
                self._line(name, "problem", said)
                return
        self._line(name, "ok")

    def _steps(self) -> list[dict[str, Any]]:
        return [seen["observation"] for seen in self._trace[1:]]

    def _range(self, driver: Driver) -> None:
        name = "rewards are in their declared range"
        ranges = {path: each._range() for path, each in _rubrics(driver)}
        for number, seen in enumerate(self._steps()):
            values = {"": seen["reward"], **(seen["metadata"].get(COMPONENTS) or {})}
            for path, value in values.items():
                declared = ranges.get(path)
                if declared is None or value is None:
                    continue
                if not declared[0] <= value <= declared[1]:
                    what = f"rubric {path!r}" if path else "the reward"
                    said = f"step {number}: {what} is {value:g}, outside of {list(declared)}"
                    self._line(name, "problem", said)
                    return
        if ranges[""] is None:
            self._line(name, "note", "the rubric declares none; score_range says what is possible")
        else:
            self._line(name, "ok")

    def _json(self) -> None:
        name = "observations survive JSON"
        for number, observation in enumerate(self._observations):
            try:
                observation_json(observation)
                again = type(observation).model_validate_json(observation.model_dump_json())
            except (ValidationError, ValueError, TypeError) as error:
                self._line(name, "problem", f"observation {number}: {_said(error)}")
                return
            lost = difference(observation.model_dump(), again.model_dump())
            if lost:
                self._line(name, "problem", f"observation {number}: {lost}")
                return
        self._line(name, "ok")

    def _repeatable(self, first: Driver) -> None:
        name = f"seed {self._seed} makes it repeatable"
        for what, driver in (("another instance", self._new()), ("a second episode", first)):
            self._compare(name, what, self._play(driver))
        self._line(name, "ok")

    def _apart(self) -> None:
        name = "two instances share nothing"
        one, two = self._new(), self._new()
        ours = {id(rubric): path for path, rubric in _rubrics(one)}
        shared = [ours[id(rubric)] for _, rubric in _rubrics(two) if id(rubric) in ours]
        if shared:
            what = f"rubric {shared[0]!r}" if shared[0] else "rubric"
            said = f"they have the same {what}; make one in __init__, for each its own"
            self._line(name, "problem", said)
            return
        traces: tuple[Trace, Trace] = ([], [])
        pairs = list(zip((one, two), traces, strict=True))
        for driver, trace in pairs:
            trace.append(self._seen(driver, self._reset(driver)))
        for action in self._actions:
            for driver, trace in pairs:
                if not trace[-1]["observation"]["done"]:
                    trace.append(self._seen(driver, self._step(driver, action)))
        for trace in traces:
            self._compare(name, "stepped in turn with another instance, it", trace)
        self._line(name, "ok")

    def _forgets(self, driver: Driver) -> None:
        name = "a reset forgets the old trajectory"
        self._reset(driver)
        nodes = _rubrics(driver)
        kept = [
            path for path, each in nodes if isinstance(each, TrajectoryRubric) and each.trajectory
        ]
        if kept:
            said = f"{kept[0] or 'the rubric'!s} still has it; call self._reset_rubric() in reset"
            self._line(name, "problem", said)
        else:
            self._line(name, "ok")

    def _after_done(self, driver: Driver) -> None:
        name = "a step after the end is refused"
        if not self._trace[-1]["observation"]["done"]:
            count = len(self._actions)
            said = f"not looked at: no episode ended in {count} steps; try more, or other actions"
            self._line(name, "note", said)
            return
        self._play(driver)
        try:
            self._step(driver, self._actions[0])
        except EpisodeError:
            self._line(name, "ok")
            return
        except Exception as error:
            said = f"it raises {type(error).__name__}; EpisodeError says it better"
            self._line(name, "note", said)
            return
        documented = driver.environment.after_done
        if documented:
            self._line(name, "ok", f"it is not, as documented: {documented}")
        else:
            said = "it is taken; raise EpisodeError, or say in after_done what it does"
            self._line(name, "problem", said)

    # Inside ---------------------------------------------------------------------------------------

    def _compare(self, name: str, what: str, trace: Trace) -> None:
        for number, (expected, seen) in enumerate(zip(self._trace, trace, strict=False)):
            differs = difference(expected, seen)
            if differs:
                self._line(name, "problem", f"{what} shows another observation {number}: {differs}")
                raise _StopChecks
        if len(trace) != len(self._trace):
            said = f"{what} ended after {len(trace) - 1} steps, not {len(self._trace) - 1}"
            self._line(name, "problem", said)
            raise _StopChecks

    def _attempt(self, name: str, function: Callable[[], Any]) -> Any:
        """Do what everything after it needs."""
        try:
            result = function()
        except Exception as error:
            hint = "; the actions were made up: give some that fit" if self._made_up else ""
            self._line(name, "problem", _said(error) + hint)
            raise _StopChecks from error
        self._line(name, "ok")
        return result

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call an environment as a server does: in whatever thread, and not for ever."""
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put((function(), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=work, daemon=True, name="guerdon-check").start()
        try:
            result, error = answers.get(timeout=self._timeout_s)
        except queue.Empty:
            limit = self._timeout_s
            raise EnvTimeoutError(f"it took longer than {limit:g} s", seconds=limit) from None
        if error is not None:
            raise error
        return result

    def _line(self, name: str, status: Literal["ok", "problem", "note"], said: str = "") -> None:
        self.report.lines.append(CheckLine(name, status, said))


def _rubrics(driver: Driver) -> list[tuple[str, Rubric]]:
    """Every rubric of an environment, by path."""
    rubric: Rubric = driver.environment.rubric
    return [("", rubric), *rubric.named_rubrics()]


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    from guerdon._background import run

    return run(function(*arguments))


def _actions(
    driver: Driver,
    given: Sequence[Action | Mapping[str, Any]] | None,
    steps: int,
    seed: int,
) -> list[Action]:
    kind = driver.environment.action_type
    if given is None:
        return sample_actions(kind, 3 * steps, seed=seed)  # some may be refused
    if not given:
        raise EnvError("no actions were given")
    models = [kind.model_validate(each) if isinstance(each, Mapping) else each for each in given]
    return [models[number % len(models)] for number in range(steps)]


def _said(error: BaseException) -> str:
    if isinstance(error, GuerdonError):
        return str(error)
    return f"{type(error).__name__}: {error}"
