"""`check_environment`: what an author runs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from guerdon.envs.amounts import check_amount, check_seconds
from guerdon.envs.checking.comparison import difference
from guerdon.envs.checking.player import Player, Seen
from guerdon.envs.checking.report import CheckLine, EnvironmentReport
from guerdon.envs.checking.sampling import sample_actions
from guerdon.envs.driver import Driver
from guerdon.envs.invalid import say_invalid
from guerdon.envs.scoring import COMPONENTS, ERROR
from guerdon.envs.server.messages import observation_json, state_json
from guerdon.errors import EpisodeError, GuerdonError, InvalidArgumentError
from guerdon.rubrics.failure import say_failure
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import TrajectoryRubric
from guerdon.types.action import Action
from guerdon.types.observation import Observation

__all__ = ["check_environment"]


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

    Raises:
        InvalidArgumentError: `steps` or `timeout_s` is not over 0.
    """
    check_amount("steps", steps, "steps")
    player = Player(env, seed, check_seconds("timeout_s", timeout_s))
    checks = _Checks(player, actions, seed, steps)
    report = EnvironmentReport()
    for name, look, is_needed in checks.all():
        line = _line(name, look)
        report.lines.append(line)
        if is_needed and line.status == "problem":
            break
    raised = player.close()
    if raised:
        report.lines.append(CheckLine("it can be closed", "problem", _said(raised[0])))
    return report


class _Found(Exception):
    """What a check has found to be wrong, in words."""


class _Note(Exception):
    """What a check couldn't look at, or what may be meant."""


def _line(name: str, look: Callable[[], str | None]) -> CheckLine:
    try:
        said = look()
    except _Note as note:
        return CheckLine(name, "note", str(note))
    except _Found as found:
        return CheckLine(name, "problem", str(found))
    except Exception as error:
        return CheckLine(name, "problem", _said(error))
    return CheckLine(name, "ok", said or "")


class _Checks:
    """The checks, and what the later ones know from the earlier."""

    def __init__(
        self,
        player: Player,
        given: Sequence[Action | Mapping[str, Any]] | None,
        seed: int,
        steps: int,
    ) -> None:
        self._player = player
        self._given = given
        self._seed = seed
        self._steps = steps
        self._first: Any = None  # the driver of the first environment
        self._actions: list[Action] = []
        self._trace: list[Seen] = []
        self._unsendable: str | None = None

    def all(self) -> list[tuple[str, Callable[[], str | None], bool]]:
        """Every check: its name, what it does, and whether those after it need it."""
        return [
            ("it can be made, with a rubric", self.made, True),
            ("there are actions to try", self.actions, True),
            ("an episode can be played", self.played, True),
            ("every step has a reward", self.rewarded, False),
            ("rewards are in their declared range", self.in_range, False),
            ("observations survive JSON", self.survives_json, False),
            ("a reset forgets the old trajectory", self.forgets, False),
            (f"seed {self._seed} makes it repeatable", self.repeatable, True),
            ("two instances share nothing", self.apart, False),
            ("a step after the end is refused", self.after_done, False),
        ]

    def made(self) -> None:
        self._first = self._player.new()

    def actions(self) -> None:
        kind = self._first.environment.action_type
        if self._given is None:  # more than are needed: some may be refused
            make = partial(sample_actions, kind, 3 * self._steps, seed=self._seed)
            self._actions = self._player.call(make)
            return
        if not self._given:
            raise _Found("no actions were given")
        given = enumerate(self._given)
        models = [self._player.call(partial(_model, kind, each, place)) for place, each in given]
        self._actions = [models[number % len(models)] for number in range(self._steps)]

    def played(self) -> None:
        """Play an episode, leaving out actions that the environment refuses."""
        player, driver = self._player, self._first
        observation = player.reset(driver)
        self._look_at(observation, 0)
        if observation.done:
            raise _Found("the reset ends it: its observation is done")
        trace = [player.seen(driver, observation)]
        taken: list[Action] = []
        refused: Exception | None = None
        for action in self._actions:
            if observation.done or len(taken) == self._steps:
                break
            try:
                observation = player.step(driver, action)
            except InvalidArgumentError as error:
                refused = error
                continue
            except Exception as error:
                raise _Found(_said(error) + self._hint()) from error
            taken.append(action)
            self._look_at(observation, len(taken))
            trace.append(player.seen(driver, observation))
        if not taken:
            raise _Found(f"every action was refused; the last: {refused}{self._hint()}")
        self._actions, self._trace = taken, trace

    def _hint(self) -> str:
        return "; the actions were made up: give some that fit" if self._given is None else ""

    def _look_at(self, observation: Observation, number: int) -> None:
        """Keep why an observation, or the state with it, wouldn't survive JSON."""
        if self._unsendable is not None:
            return
        try:
            lost = self._player.call(partial(_lost, observation))
            if lost:
                self._unsendable = f"observation {number}: {lost}"
            state_json(self._player.call(self._first.state))
        except Exception as error:
            self._unsendable = f"observation {number}: {_said(error)}"

    def rewarded(self) -> None:
        for number, seen in enumerate(self._observations()):
            if ERROR in seen["metadata"]:
                raise _Found(f"step {number}: {seen['metadata'][ERROR]}")
            if seen["reward"] is None:
                raise _Found(f"step {number} has none; return self.score(action, observation)")

    def in_range(self) -> None:
        ranges = {path: rubric._range() for path, rubric in _rubrics(self._first)}
        for number, seen in enumerate(self._observations()):
            values = {"": seen["reward"], **(seen["metadata"].get(COMPONENTS) or {})}
            for path, value in values.items():
                declared = ranges.get(path)
                if declared is None or value is None or declared[0] <= value <= declared[1]:
                    continue
                what = f"rubric {path!r}" if path else "the reward"
                raise _Found(
                    f"step {number}: {what} is {value:g}, outside of {list(declared)}; mend the "
                    "rubric, or its score_range"
                )
        if ranges[""] is None:
            raise _Note("the rubric declares none; score_range says what is possible")

    def survives_json(self) -> None:
        if self._unsendable is not None:
            raise _Found(self._unsendable)

    def forgets(self) -> None:
        self._player.reset(self._first)
        for path, rubric in _rubrics(self._first):
            if isinstance(rubric, TrajectoryRubric) and rubric.trajectory:
                what = f"rubric {path!r}" if path else "the rubric"
                raise _Found(f"{what} still has it; call self._reset_rubric() in reset")

    def repeatable(self) -> None:
        why = (
            "draw from a random.Random(seed) of the episode's own, use no clock, and keep what "
            "changes in self, not in the class"
        )
        episodes = (("a second episode", self._first), ("another instance", self._player.new()))
        for what, driver in episodes:
            self._same(f"{what} shows", self._player.episode(driver, self._actions), why)

    def apart(self) -> None:
        one, two = self._player.new(), self._player.new()
        ours = {id(rubric): path for path, rubric in _rubrics(one)}
        shared = [ours[id(rubric)] for _, rubric in _rubrics(two) if id(rubric) in ours]
        if shared:
            what = f"rubric {shared[0]!r}" if shared[0] else "rubric"
            raise _Found(f"they have the same {what}; make one in __init__, for each its own")
        why = "keep what changes in self, made in __init__, not in the class or the module"
        for trace in self._player.in_turn((one, two), self._actions):
            self._same("stepped in turn with another instance, one shows", trace, why)

    def after_done(self) -> str | None:
        player, driver = self._player, self._first
        if not self._trace[-1]["observation"]["done"]:
            count = len(self._actions)
            raise _Note(
                f"not looked at: no episode ended in {count} steps; try more, or other actions"
            )
        player.episode(driver, self._actions)
        try:
            player.step(driver, self._actions[0])
        except EpisodeError:
            return None
        except Exception as error:
            raise _Note(f"it raises {type(error).__name__}; EpisodeError says it better") from error
        documented = driver.environment.after_done
        if not documented:
            raise _Found("it is taken; raise EpisodeError, or say in after_done what it does")
        return f"it is not, as documented: {documented}"

    def _observations(self) -> list[dict[str, Any]]:
        return [seen["observation"] for seen in self._trace[1:]]

    def _same(self, what: str, trace: list[Seen], why: str) -> None:
        """Whether an episode is the first one again."""
        for number, (expected, seen) in enumerate(zip(self._trace, trace, strict=False)):
            differs = difference(expected, seen)
            if differs:
                raise _Found(f"{what} something else at step {number}: {differs}; {why}")
        if len(trace) != len(self._trace):
            raise _Found(f"{what} {len(trace) - 1} steps, not {len(self._trace) - 1}; {why}")


def _lost(observation: Observation) -> str:
    """What an observation loses over JSON, in words."""
    observation_json(observation)
    again = type(observation).model_validate_json(observation.model_dump_json())
    return difference(observation.model_dump(), again.model_dump())


def _model(kind: type[Action], given: Any, place: int) -> Action:
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise _Found(f"actions[{place}] is {given!r:.60}; it takes a {kind.__name__} or a dict")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _Found(f"actions[{place}]: {say_invalid(error)}") from error


def _rubrics(driver: Driver) -> list[tuple[str, Rubric]]:
    """Every rubric of an environment, by path."""
    rubric: Rubric = driver.environment.rubric
    return [("", rubric), *rubric.named_rubrics()]


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, GuerdonError) else say_failure(error)
