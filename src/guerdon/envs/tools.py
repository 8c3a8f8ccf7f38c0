"""`ToolEnvironment`: an environment in which the agent acts by calling tools."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

from pydantic import ValidationError

from guerdon._background import run
from guerdon._validation import shown, summarize
from guerdon.envs.environment import Environment
from guerdon.envs.tool_functions import OPTIONS, ToolFunction
from guerdon.envs.tool_servers import ToolServers
from guerdon.errors import EnvDefinitionError, EnvError, EpisodeError, InvalidArgumentError
from guerdon.types.observation import Observation
from guerdon.types.state import State
from guerdon.types.tool_calls import (
    CallToolAction,
    CallToolObservation,
    CallToolsObservation,
    ErrorType,
    ListToolsAction,
    ListToolsObservation,
    SayAction,
    SayObservation,
    Tool,
    ToolAction,
    ToolError,
    ToolOutcome,
    calls_of,
    result_of,
)

__all__ = ["ToolEnvironment"]

# The key of an observation's metadata with what its calls cost.
COST = "tool_cost"
# That of the names of the tools that may be called next, if some are hidden at times.
VISIBLE = "tools"

# The most characters of an error that the agent reads.
MAX_ERROR = 10_000


class ToolEnvironment(Environment[ToolAction, Observation, State]):
    """An environment in which the agent acts by calling tools: methods with the decorator `tool`.

    The agent calls a tool (`CallToolAction`) or several (`CallToolsAction`), says something
    (`SayAction`), or asks which tools there are (`ListToolsAction`, which takes no step). The
    observations are those of the same names; each call has a result or an error, and no error of a
    call ends the episode. Its rubric gets the action and the observation, as in any environment.

    Example:
        >>> from guerdon import ToolEnvironment, as_rubric, tool
        >>> class Bookings(ToolEnvironment):
        ...     '''Flight bookings of one airline.'''
        ...     def __init__(self):
        ...         super().__init__(rubric=as_rubric(lambda action, observation: observation.done))
        ...     def reset(self, seed=None, episode_id=None, **kwargs):
        ...         self.seats = {"HAT170": 1}
        ...         return self.begin("Book a seat on HAT170.", episode_id=episode_id)
        ...     @tool(ends=True)
        ...     def book(self, flight: str) -> str:
        ...         '''Book a seat.'''
        ...         self.seats[flight] -= 1
        ...         return "booked"
        >>> with Bookings() as environment:
        ...     first = environment.reset()
        ...     call = {"type": "call_tool", "tool_name": "book", "arguments": {"flight": "HAT170"}}
        ...     observation = environment.step(environment.action_type.model_validate(call))
        >>> observation.text, observation.reward, observation.done
        ('booked', 1.0, True)

    Args:
        rubric: Computes the reward.
        tool_servers: MCP servers whose tools the agent may call, too, in the forms that `MCPClient`
            accepts. Each episode has a connection of its own to each, from `begin` on, and a server
            that is a program is started for it.
        **options: Those of `Environment`.

    Raises:
        EnvError: In `begin`: a server can't be reached, or two tools have the same name.

    Attributes:
        max_calls: How many calls of one turn are made; others are answered with an error.
        max_result_bytes: The largest result of a call as JSON; a larger one is an error for the
            agent.
        tool_timeout_s: Seconds that an async tool, or that of a server, may take; the step's own
            limit applies to all.
    """

    max_calls: ClassVar[int] = 128
    max_result_bytes: ClassVar[int] = 2**20
    tool_timeout_s: ClassVar[float] = 30.0

    _declared: ClassVar[Mapping[str, ToolFunction]] = {}

    _servers: ToolServers | None = None
    _episode: State | None = None
    _is_done = False
    _cost = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = dict.fromkeys(name for home in reversed(cls.__mro__) for name in vars(home))
        declared: dict[str, ToolFunction] = {}
        for name in names:
            member = inspect.getattr_static(cls, name)
            made = getattr(member, OPTIONS, None)
            if made is None:
                continue
            if made.spec.name in declared:
                raise EnvDefinitionError(f"{cls.__name__} has two tools {made.spec.name!r}")
            declared[made.spec.name] = made
        cls._declared = declared

    def __init__(self, rubric: Any = None, *, tool_servers: Any = None, **options: Any) -> None:
        super().__init__(rubric, **options)
        if tool_servers is not None:
            self._servers = ToolServers(tool_servers)

    # For authors to override -------------------------------------------------------------------

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        """Begin an episode; by default without a message. Authors return what `begin` returns."""
        return self.begin([], episode_id=episode_id)

    def say(self, content: str) -> Any:
        """Answer a message of the agent that calls no tool; it may be async.

        Args:
            content: The message.

        Returns:
            What a user answers; None, the default, ends the episode.
        """
        return None

    @property
    def state(self) -> State:
        """The state of the episode."""
        return State() if self._episode is None else self._episode

    # For authors to call -----------------------------------------------------------------------

    def begin(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        system: str | None = None,
        episode_id: str | None = None,
    ) -> Observation:
        """Begin an episode, in `reset`: reset the rubric and the state.

        Args:
            messages: The first message of the user, or several messages in OpenAI's format.
            system: Instructions for the agent.
            episode_id: The episode's name.

        Returns:
            The first observation.
        """
        if self._servers is not None:
            run(self._servers.open(self._declared))
        self._reset_rubric()
        self._episode = State(episode_id=episode_id)
        self._is_done = False
        if isinstance(messages, str):
            observation = SayObservation.of(messages, system=system)
        else:
            first = [] if system is None else [{"role": "system", "content": system}]
            observation = SayObservation(messages=[*first, *map(dict, messages)])
        return self._with_visible(observation)

    def end(self) -> None:
        """End the episode with the step that is being taken."""
        self._is_done = True

    def close(self) -> None:
        """Close the connections to the servers; a subclass that has its own calls this."""
        if self._servers is not None:
            run(self._servers.close())

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the agent may call now, in OpenAI's format."""
        return [each.to_openai() for each in self.list_tools()]

    def list_tools(self) -> list[Tool]:
        """Return the tools that the agent may call now."""
        return [each.spec for each in self._functions().values() if self._is_visible(each)]

    def call_tool(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool without a step, such as those of the reference solution of a task.

        Args:
            name: The tool's name.
            **arguments: Its arguments.

        Returns:
            What it returns.

        Raises:
            InvalidArgumentError: There is no such tool, or an argument is invalid.
            Exception: What it raises.
        """
        made = self._functions().get(name)
        if made is None:
            raise InvalidArgumentError(f"there is no tool {shown(name)}")
        try:
            ready = self._arguments(made, arguments)
        except ValidationError as error:
            raise InvalidArgumentError(f"{name}: {summarize(error)}") from error
        value = made.function(self, **ready)
        return run(_limited(value, self.tool_timeout_s)) if inspect.isawaitable(value) else value

    # A step --------------------------------------------------------------------------------------

    def step(self, action: ToolAction, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Make the calls of an action, or answer its message."""
        if isinstance(action, ListToolsAction):
            return self._with_visible(ListToolsObservation(tools=self.list_tools()))
        self._begin_step()
        if isinstance(action, SayAction):
            answer = self.say(action.content)
            observation = self._answered(
                run(_awaited(answer)) if inspect.isawaitable(answer) else answer
            )
        else:
            calls = enumerate(calls_of(action))
            outcomes = [self._call(call, number) for number, call in calls]
            observation = self._called(action, outcomes)
        return self.score(action, observation)

    def _begin_step(self) -> None:
        if self._episode is None or self._is_done:
            why = "has ended" if self._is_done else "was never begun"
            raise EpisodeError(f"the episode {why}; reset begins one")
        self._episode.step_count += 1
        self._cost = 0.0

    def _answered(self, answer: Any) -> Observation:
        if answer is None:
            self._is_done = True
        observation = SayObservation(messages=[])
        if answer is not None:
            observation = SayObservation.of(answer)
        return self._closed(observation)

    def _called(self, action: ToolAction, outcomes: list[ToolOutcome]) -> Observation:
        if isinstance(action, CallToolAction):
            observation = CallToolObservation(**dict(outcomes[0]))
            observation._received = outcomes[0].received
            return self._closed(observation)
        return self._closed(CallToolsObservation(results=outcomes))

    def _closed(self, observation: Observation) -> Observation:
        observation.done = self._is_done
        if self._cost:
            observation.metadata[COST] = self._cost
        return self._with_visible(observation)

    def _with_visible(self, observation: Observation) -> Observation:
        """Write which tools are visible into the metadata, if that can change."""
        if any(each.when is not None for each in self._functions().values()):
            observation.metadata[VISIBLE] = [each.name for each in self.list_tools()]
        return observation

    # A call --------------------------------------------------------------------------------------

    def _functions(self) -> Mapping[str, ToolFunction]:
        """All tools by name, also those that are not visible now."""
        if self._servers is None:
            return self._declared
        return {**self._declared, **self._servers.functions}

    def _is_visible(self, made: ToolFunction) -> bool:
        # Before the first episode there is no state that `when` could read.
        return made.when is None or (self._episode is not None and bool(made.when(self)))

    def _call(self, call: CallToolAction, number: int) -> ToolOutcome:
        prepared = self._prepared(call, number)
        if isinstance(prepared, ToolOutcome):
            return prepared
        made, ready = prepared
        received = _received(made, ready, call.arguments)
        try:
            value = made.function(self, **ready)
            if inspect.isawaitable(value):
                value = run(_limited(value, self.tool_timeout_s))
        except (Exception, SystemExit) as error:
            outcome = self._failed(call, error)
        else:
            outcome = self._outcome(made, value)
        outcome._received = received
        return outcome

    def _failed(self, call: CallToolAction, error: BaseException) -> ToolOutcome:
        """Return the outcome of a tool that has raised; raises failures of the environment."""
        if isinstance(error, _ToolTimeoutError):
            text = f"{call.tool_name} took longer than {self.tool_timeout_s:g} s"
            return _failure(call, "timeout", text)
        if isinstance(error, EnvError):
            raise error
        return _failure(call, "execution_error", _described_error(error))

    def _prepared(
        self, call: CallToolAction, number: int
    ) -> tuple[ToolFunction, dict[str, Any]] | ToolOutcome:
        """Return the tool and its arguments, or the outcome of a call that is not made."""
        name = call.tool_name
        if self._is_done:
            return _failure(call, "execution_error", "not called: the episode has ended")
        if number >= self.max_calls:
            text = f"not called: a turn may have at most {self.max_calls} calls"
            return _failure(call, "execution_error", text)
        made = self._functions().get(name)
        if made is None or not self._is_visible(made):
            names = ", ".join(each.name for each in self.list_tools())
            text = f"there is no tool {shown(name)}; the tools are {names or 'none'}"
            return _failure(call, "tool_not_found", text)
        if call.arguments_error:
            return _failure(call, "invalid_args", call.arguments_error)
        try:
            return made, self._arguments(made, call.arguments)
        except ValidationError as error:
            return _failure(call, "invalid_args", summarize(error))

    def _arguments(self, made: ToolFunction, given: dict[str, Any]) -> dict[str, Any]:
        return given if made.arguments is None else made.arguments.validate_python(given)

    def _outcome(self, made: ToolFunction, value: Any) -> ToolOutcome:
        self._cost += made.cost
        try:
            result = result_of(value)
            size = len(result.model_dump_json())
        except ValueError as error:
            text = f"the result can't be sent: {error}"
            return _failure(made.spec, "execution_error", text)
        if size > self.max_result_bytes:
            text = f"the result has {size} bytes, more than {self.max_result_bytes}"
            return _failure(made.spec, "execution_error", text)
        if made.ends and not result.is_error:
            self._is_done = True
        return ToolOutcome(tool_name=made.spec.name, result=result)


def _received(
    made: ToolFunction, ready: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any] | None:
    """The arguments that a tool will receive, if they differ from those of the call."""
    received = {**made.defaults, **ready}
    if repr(received) == repr(given):
        return None
    try:
        return deepcopy(received)  # the tool may change them
    except Exception:
        return received


class _ToolTimeoutError(Exception):
    """A tool took too long."""


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


async def _limited(value: Awaitable[Any], seconds: float) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await value
    except TimeoutError:
        if limit.expired():  # else it is of the tool's own code
            raise _ToolTimeoutError from None
        raise


def _failure(call: CallToolAction | Tool, kind: ErrorType, message: str) -> ToolOutcome:
    name = call.tool_name if isinstance(call, CallToolAction) else call.name
    text = message.encode(errors="replace").decode()  # without what JSON can't represent
    if len(text) > MAX_ERROR:
        text = f"{text[:MAX_ERROR]}… ({len(text):,} characters)"
    return ToolOutcome(tool_name=name, error=ToolError(error_type=kind, message=text))


def _described_error(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the tool called sys.exit({error.code!r})"
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__
