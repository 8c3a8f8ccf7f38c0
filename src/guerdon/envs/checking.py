"""`check_environment`: finds what makes an environment unfit for training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from guerdon._background import as_asyncio, background_loop
from guerdon._thresholds import reaches
from guerdon._validation import check_integer, check_seconds, summarize
from guerdon.envs.environment import COMPONENTS, ERROR
from guerdon.envs.runner import OWN_THREAD, EnvAdapter, EnvRunner, EnvThreads
from guerdon.envs.sampling import sample_actions, sample_calls
from guerdon.envs.server.protocol import observation_json, state_json
from guerdon.envs.tools import ToolEnvironment
from guerdon.errors import (
    EnvError,
    EnvTimeoutError,
    EpisodeError,
    GuerdonError,
    InvalidArgumentError,
)
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import TrajectoryRubric
from guerdon.types.action import Action
from guerdon.types.agents import AGENT
from guerdon.types.observation import Observation

__all__ = ["CheckLine", "EnvironmentReport", "check_environment"]

# An id that environments may show: always the same, so that it adds no difference.
EPISODE = "check"

Status = Literal["ok", "problem", "note"]

# What is visible after a reset or a step: the observation and the state.
Seen = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckLine:
    """The result of one check.

    Example:
        >>> from guerdon.envs import CheckLine
        >>> CheckLine("it can be made, with a rubric", "ok").detail
        ''

    Attributes:
        name: What was checked.
        status: ``ok``, ``problem``, or ``note`` if it couldn't be checked, or may be intended.
        detail: What was found, and how to fix it.
    """

    name: str
    status: Status
    detail: str = ""


@dataclass(slots=True)
class EnvironmentReport:
    """What `check_environment` found.

    Example:
        >>> from guerdon.envs import CheckLine, EnvironmentReport
        >>> report = EnvironmentReport([CheckLine("it can be closed", "problem", "it raises")])
        >>> report.ok, [line.detail for line in report.problems]
        (False, ['it raises'])

    Attributes:
        lines: One for each check, in the order in which they ran.
    """

    lines: list[CheckLine] = field(default_factory=list)

    @property
    def problems(self) -> list[CheckLine]:
        """The lines that need fixing."""
        return [line for line in self.lines if line.status == "problem"]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def raise_for_problems(self) -> None:
        """Raise if there are problems, for tests.

        Raises:
            EnvError: There are problems; it lists all of them.
        """
        if self.problems:
            raise EnvError("; ".join(f"{line.name}: {line.detail}" for line in self.problems))


def check_environment(
    env: Callable[[], Any],
    *,
    actions: Sequence[Action | Mapping[str, Any]] | None = None,
    seed: int = 0,
    steps: int = 20,
    timeout_s: float = 60.0,
) -> EnvironmentReport:
    """Find what makes an environment unfit for training.

    It finds a missing rubric; a reward outside its declared range; a seed that doesn't make the
    environment repeatable; an observation that doesn't survive JSON; state that two instances
    share; a reset that keeps the old trajectory; a step after the end that is neither refused nor
    documented; code that stops all other environments of the process for more than a second;
    objects that belong to a thread, as each call has another thread than the one before.

    Example:
        >>> from guerdon import Action, Environment, Observation, RegexMatch, State
        >>> from guerdon import check_environment
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
        env: An environment class, or a function that makes an environment.
        actions: What to play, repeated as needed; by default sampled from the action class.
        seed: What to reset with.
        steps: How many steps to play at most, at least 1.
        timeout_s: Seconds that each call may take, above 0.

    Returns:
        A line for each check. What the environment raises is in the report, and not raised.

    Raises:
        InvalidArgumentError: `steps` or `timeout_s` is out of range.
    """
    check_integer("steps", steps, low=1)
    player = _Player(env, seed, check_seconds("timeout_s", timeout_s))
    checks = _Checks(player, actions, seed, steps)
    report = EnvironmentReport()
    for name, check, is_needed in checks.all():
        line = _line(name, check)
        report.lines.append(line)
        if is_needed and line.status == "problem":
            break
    failures = player.close()
    if failures:
        report.lines.append(CheckLine("it can be closed", "problem", _text(failures[0])))
    return report


class _Found(Exception):
    """What a check has found; a note if that may be intended, or couldn't be checked."""

    def __init__(self, detail: str, status: Status = "problem") -> None:
        super().__init__(detail)
        self.status = status


def _line(name: str, check: Callable[[], str | None]) -> CheckLine:
    try:
        return CheckLine(name, "ok", check() or "")
    except _Found as found:
        return CheckLine(name, found.status, str(found))
    except Exception as error:
        return CheckLine(name, "problem", _text(error))


class _Player:
    """Plays episodes in environments as a server would: in threads, with a time limit.

    Args:
        env: Makes an environment.
        seed: What to reset with.
        timeout_s: Seconds that each call may take.
    """

    def __init__(self, env: Callable[[], Any], seed: int, timeout_s: float) -> None:
        self._env = env
        self._seed = seed
        self._timeout_s = timeout_s
        self._threads = self.wait(self._start())
        self._runners: list[EnvRunner] = []

    async def _start(self) -> EnvThreads:
        return EnvThreads(1, name="guerdon-check", reuses=False)

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the background loop, unless it blocks that for too long."""
        future = asyncio.run_coroutine_threadsafe(as_asyncio(coroutine), background_loop())
        try:
            return future.result(2 * self._timeout_s + 1)
        except TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            raise EnvTimeoutError(
                f"the environment's async code blocks the event loop and took longer than "
                f"{self._timeout_s:g} s",
                seconds=self._timeout_s,
            ) from error

    def new(self, adapt: Callable[[Any], Any] = EnvAdapter) -> EnvRunner:
        """Make an environment."""
        runner = EnvRunner(self._env, self._threads, timeout_s=self._timeout_s, adapt=adapt)
        self._runners.append(runner)
        self.wait(runner.open())
        return runner

    def reset(self, runner: EnvRunner) -> Observation:
        """Begin an episode."""
        observation: Observation = self.wait(runner.reset(self._seed, EPISODE))
        return observation

    def needs_own_thread(self, actions: Sequence[Action]) -> bool:
        """Whether an episode can be played in the thread that made the environment."""
        try:
            runner = self.new(_in_own_thread)
            self.reset(runner)
            for action in actions:
                if self.wait(runner.step(action)).done:
                    break
        except Exception:
            return False
        return True

    def call(self, runner: EnvRunner, function: Callable[[], Any]) -> Any:
        """Call an author's function with the same time limit."""
        return self.wait(runner.call(lambda adapter: function(), "it"))

    def seen(self, runner: EnvRunner, observation: Observation) -> Seen:
        """Return what is visible: the observation, and the state without the episode's id."""
        return {
            "observation": observation.model_dump(),
            "state": self.wait(runner.state()).model_dump(exclude={"episode_id"}),
        }

    def episode(self, runner: EnvRunner, actions: Sequence[Action]) -> list[Seen]:
        """Play an episode, until it or the actions end."""
        return self.in_turn([runner], actions)[0]

    def in_turn(self, runners: Sequence[EnvRunner], actions: Sequence[Action]) -> list[list[Seen]]:
        """Play an episode in each of several environments, one step in each in turn."""
        traces = [[self.seen(runner, self.reset(runner))] for runner in runners]
        for action in actions:
            for runner, trace in zip(runners, traces, strict=True):
                if not trace[-1]["observation"]["done"]:
                    trace.append(self.seen(runner, self.wait(runner.step(action))))
        return traces

    def close(self) -> list[Exception]:
        """Close every environment, and return what that raised."""
        raised = []
        for runner in self._runners:
            try:
                error = self.wait(runner.close(self._timeout_s, log=False))
            except EnvTimeoutError as timeout:
                error = timeout
            if error is not None:
                raised.append(error)
        background_loop().call_soon_threadsafe(self._threads.close)
        return raised


def _in_own_thread(environment: Any) -> EnvAdapter:
    environment.own_thread = True
    return EnvAdapter(environment)


@dataclass
class _Checks:
    """The checks, and what the later ones know from the earlier."""

    player: _Player
    given: Sequence[Action | Mapping[str, Any]] | None
    seed: int
    steps: int
    first: Any = None  # the runner of the first environment
    environment: Any = None
    tried: list[Action] = field(default_factory=list)
    trace: list[Seen] = field(default_factory=list)
    unsendable: str | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)  # when the episode began

    def all(self) -> list[tuple[str, Callable[[], str | None], bool]]:
        """Every check: its name, what it does, and whether those after it need it."""
        return [
            ("it can be made, with a rubric", self.made, True),
            ("there are actions to try", self.actions, True),
            ("an episode can be played", self.played, True),
            ("every step has a reward", self.rewarded, False),
            ("steps keep the configuration of the reward", self.keeps_configuration, False),
            ("rewards are in their declared range", self.in_range, False),
            ("observations survive JSON", self.survives_json, False),
            ("a reset clears the old trajectory", self.clears_trajectory, False),
            (f"seed {self.seed} makes it repeatable", self.repeatable, True),
            ("two instances share nothing", self.shares_nothing, False),
            ("a step after the end is refused", self.after_done, False),
        ]

    def made(self) -> None:
        self.first = self.player.new()
        self.environment = self.first.adapter.environment

    def actions(self) -> None:
        kind = self.environment.action_type
        call = partial(self.player.call, self.first)
        if self.given is None and isinstance(self.environment, ToolEnvironment):
            return  # `played` samples calls of the tools that the episode begins with
        if self.given is None:  # more than are needed: some may be refused
            make = partial(sample_actions, kind, 3 * self.steps, seed=self.seed)
            self.tried = call(make)
            return
        if not self.given:
            raise _Found("no actions were given")
        models = [call(partial(_model, kind, each, place)) for place, each in enumerate(self.given)]
        self.tried = [models[number % len(models)] for number in range(self.steps)]

    def played(self) -> None:
        """Play an episode, in another thread at each call."""
        try:
            self._play()
        except Exception as error:
            if isinstance(error, _Found) and error.__cause__ is None:
                raise  # it isn't what the environment has raised
            if OWN_THREAD in str(error) or self.environment.own_thread:
                raise
            if not self.player.needs_own_thread(self.tried[: self.steps]):
                raise
            text = str(error) if isinstance(error, _Found) else _text(error)
            raise _Found(
                f"{text}; it can be played in the thread that made it: set `own_thread = True` in "
                f"{type(self.environment).__name__}"
            ) from error

    def _play(self) -> None:
        """Play an episode, leaving out actions that the environment refuses."""
        player, runner = self.player, self.first
        observation = player.reset(runner)
        trace = [player.seen(runner, observation)]
        self.fingerprints = self.player.call(runner, self._read_fingerprints)
        self._check_json(observation, 0)
        if observation.done:
            raise _Found("the reset ends it: its observation is done")
        agents = self.environment.agents
        if agents and observation.metadata.get(AGENT) not in agents:
            raise _Found(
                f"the reset must name one of the agents {list(agents)} in metadata[{AGENT!r}]"
            )
        if self.given is None and isinstance(self.environment, ToolEnvironment):
            tools = player.call(runner, self.environment.list_tools)
            self.tried = list(sample_calls(tools, 3 * self.steps, seed=self.seed))
        taken: list[Action] = []
        refused: Exception | None = None
        for action in self.tried:
            if observation.done or len(taken) == self.steps:
                break
            try:
                observation = player.wait(runner.step(action))
            except InvalidArgumentError as error:
                refused = error
                continue
            except Exception as error:
                raise _Found(_text(error) + self._hint()) from error
            taken.append(action)
            trace.append(player.seen(runner, observation))
            self._check_json(observation, len(taken))
        if not taken:
            raise _Found(f"every action was refused; the last: {refused}{self._hint()}")
        self.tried, self.trace = taken, trace

    def _hint(self) -> str:
        return "; the actions were sampled: pass some that are valid" if self.given is None else ""

    def _check_json(self, observation: Observation, number: int) -> None:
        """Keep the reason why an observation, or its state, doesn't survive JSON."""
        if self.unsendable is not None:
            return
        try:
            lost = self.player.call(self.first, partial(_lost, observation))
            if lost:
                self.unsendable = f"observation {number}: {lost}"
            adapter = self.first.adapter
            state_json(self.player.call(self.first, lambda: adapter.state()))
        except Exception as error:
            self.unsendable = f"observation {number}: {_text(error)}"

    def rewarded(self) -> None:
        for number, seen in enumerate(self._observations()):
            if ERROR in seen["metadata"]:
                raise _Found(f"step {number}: {seen['metadata'][ERROR]}")
            if seen["reward"] is None:
                raise _Found(f"step {number} has none; return self.score(action, observation)")

    def _read_fingerprints(self) -> dict[str, str]:
        return {path: rubric.fingerprint() for path, rubric in _rubrics(self.environment)}

    def keeps_configuration(self) -> None:
        now = self.player.call(self.first, self._read_fingerprints)
        moved = [path for path, each in self.fingerprints.items() if now.get(path) != each]
        if moved:
            path = max(moved, key=lambda path: path.count(".") + bool(path))
            what = f"rubric {path!r}" if path else "the rubric"
            raise _Found(
                f"the fingerprint of {what} changed while the episode ran: `forward` changes an "
                "attribute that is tunable, or one in state_names; keep what changes in "
                "another attribute"
            )

    def in_range(self) -> None:
        ranges = {path: rubric._range() for path, rubric in _rubrics(self.environment)}
        for number, seen in enumerate(self._observations()):
            values = {"": seen["reward"], **(seen["metadata"].get(COMPONENTS) or {})}
            for path, value in values.items():
                declared = ranges.get(path)
                if declared is None or value is None:
                    continue
                if reaches(value, declared[0]) and reaches(declared[1], value):
                    continue
                what = f"rubric {path!r}" if path else "the reward"
                raise _Found(
                    f"step {number}: {what} is {value:g}, outside of {list(declared)}; fix the "
                    "rubric, or its score_range"
                )
        if ranges[""] is None:
            raise _Found("the rubric declares none; set score_range", "note")

    def survives_json(self) -> None:
        if self.unsendable is not None:
            raise _Found(self.unsendable)

    def clears_trajectory(self) -> None:
        self.player.reset(self.first)
        for path, rubric in _rubrics(self.environment):
            if isinstance(rubric, TrajectoryRubric) and rubric.trajectory:
                what = f"rubric {path!r}" if path else "the rubric"
                raise _Found(f"{what} still has it; call self._reset_rubric() in reset")

    def repeatable(self) -> None:
        why = (
            "draw from a random.Random(seed) of the episode's own, use no clock, and keep what "
            "changes in self, not in the class"
        )
        episodes = (("a second episode", self.first), ("another instance", self.player.new()))
        for what, runner in episodes:
            self._same(f"{what} shows", self.player.episode(runner, self.tried), why)

    def shares_nothing(self) -> None:
        one, two = self.player.new(), self.player.new()
        ours = {id(rubric): path for path, rubric in _rubrics(one.adapter.environment)}
        shared = [
            ours[id(rubric)]
            for _, rubric in _rubrics(two.adapter.environment)
            if id(rubric) in ours
        ]
        if shared:
            what = f"rubric {shared[0]!r}" if shared[0] else "rubric"
            raise _Found(f"they share the {what}; create it in __init__, one for each")
        why = "keep what changes in self, created in __init__, not in the class or the module"
        for trace in self.player.in_turn((one, two), self.tried):
            self._same("stepped in turn with another instance, one shows", trace, why)

    def after_done(self) -> str | None:
        player, runner = self.player, self.first
        if not self.trace[-1]["observation"]["done"]:
            count = len(self.tried)
            raise _Found(
                f"not checked: no episode ended in {count} steps; try more, or other actions",
                "note",
            )
        player.episode(runner, self.tried)
        try:
            player.wait(runner.step(self.tried[0]))
        except EpisodeError:
            return None
        except Exception as error:
            found = f"it raises {type(error).__name__}; raise EpisodeError instead"
            raise _Found(found, "note") from error
        documented = self.environment.after_done
        if not documented:
            raise _Found("it is taken; raise EpisodeError, or document in after_done what it does")
        return f"it is not, as documented: {documented}"

    def _observations(self) -> list[dict[str, Any]]:
        return [seen["observation"] for seen in self.trace[1:]]

    def _same(self, what: str, trace: list[Seen], why: str) -> None:
        """Whether an episode is the first one again."""
        for number, (expected, seen) in enumerate(zip(self.trace, trace, strict=False)):
            differs = difference(expected, seen)
            if differs:
                raise _Found(f"{what} something else at step {number}: {differs}; {why}")
        if len(trace) != len(self.trace):
            raise _Found(f"{what} {len(trace) - 1} steps, not {len(self.trace) - 1}; {why}")


def _lost(observation: Observation) -> str:
    """Return the first difference after a round trip through JSON."""
    observation_json(observation)
    again = type(observation).model_validate_json(observation.model_dump_json())
    return difference(observation.model_dump(), again.model_dump())


def _model(kind: type[Action], given: Any, place: int) -> Action:
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise _Found(f"actions[{place}] is {given!r:.60}; it must be a {kind.__name__} or a dict")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _Found(f"actions[{place}]: {summarize(error)}") from error


def _rubrics(environment: Any) -> list[tuple[str, Rubric]]:
    """Every rubric of an environment, by path."""
    rubric: Rubric = environment.rubric
    return [("", rubric), *rubric.named_rubrics()]


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, GuerdonError) else describe_failure(error)


def difference(expected: Any, seen: Any) -> str:
    """Return where two nested values differ first, as text; ``""`` if they are equal."""
    one, other = dict(_parts(expected)), dict(_parts(seen))
    for path in one | other:
        where = "".join(f".{each}" if isinstance(each, str) else f"[{each!r}]" for each in path)
        if path not in one or path not in other:
            return f"{where.lstrip('.')} is missing in one of them"
        if not _are_equal(one[path], other[path]):
            return f"{where.lstrip('.')} is {other[path]!r:.60}, not {one[path]!r:.60}"
    return ""


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield a nested value and all of its parts, each with its path."""
    yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _parts(each, (*path, key))
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _parts(each, (*path, place))


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal, apart from the parts of a dict, a list or a tuple."""
    if type(one) is not type(other) or isinstance(one, (dict, list, tuple)):
        return type(one) is type(other)
    return bool(one == other) or (one != one and other != other)
