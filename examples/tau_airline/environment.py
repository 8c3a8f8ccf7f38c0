"""`TauAirlineEnvironment`: tau-bench's airline as an environment with 14 tools and a user.

Serve it, with a model as the user (`users.SERVICE`) in a file of services::

    guerdon serve examples/tau_airline --services user.yaml
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

from examples.tau_airline import bookings, queries
from examples.tau_airline.audit import STOP
from examples.tau_airline.data import AirlineData, load_data
from examples.tau_airline.reward import airline_reward
from examples.tau_airline.task import Task, task_of
from examples.tau_airline.tools import Database
from examples.tau_airline.users import GREETING, User, choose_user, scripted_user
from guerdon import MCPClient, ToolEnvironment, tool
from guerdon._validation import check_choice, check_integer
from guerdon.types import Observation, SayObservation, Tool, ToolAction

__all__ = ["TauAirlineEnvironment"]

# The split of all tasks.
SPLIT = "test"


def _on_database(function: Callable[..., str], *, ends: bool = False) -> Any:
    """Make a tool of a function of the episode's database."""

    @functools.wraps(function)
    def call(self: TauAirlineEnvironment, **arguments: Any) -> str:
        return function(self.database, **arguments)

    return tool(call, ends=ends)


class TauAirlineEnvironment(ToolEnvironment):
    """An airline's support agent talks with a user, and books, changes and cancels flights.

    The user sends messages that `reset` got, or is played by the service ``user``, or else by a
    script. An episode ends when the user leaves (``###STOP###``), when the agent transfers the user
    to a human, or after `max_turns`: ``metadata["ended"]`` is ``user``, ``transfer`` or
    ``max_turns``. If the user's model fails, `reset` or `step` raises `EnvError`.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.environment import TauAirlineEnvironment
        >>> from guerdon.types import SayAction
        >>> task = {"instruction": "You want to hear about delays.", "actions": []}
        >>> with TauAirlineEnvironment(AirlineData({}, {}, {}, tasks=[task])) as environment:
        ...     first = environment.reset(task=0)
        ...     last = environment.step(SayAction(content="There are none."))
        >>> last.messages[0]["content"], last.reward, last.metadata["ended"]
        ('Thank you. ###STOP###', 1.0, 'user')

    Args:
        data: The data or its folder; see `data.data_path` for the default.
        mcp: The services, in place of those of the server.
        max_turns: The number of the agent's turns after which an episode ends, at least 1.

    Attributes:
        database: The database of the episode.

    Raises:
        InvalidArgumentError: The data is missing, or `max_turns` is less than 1.
    """

    max_calls = 1  # as in tau-bench, whose policy allows one at a time

    def __init__(
        self,
        data: AirlineData | str | os.PathLike[str] | None = None,
        *,
        mcp: MCPClient | None = None,
        max_turns: int = 30,
    ) -> None:
        self._data = data if isinstance(data, AirlineData) else load_data(data)
        super().__init__(rubric=airline_reward(self._data), mcp=mcp)
        self.max_turns = check_integer("max_turns", max_turns, low=1)
        self.database = Database(self._data)
        # Their numbers alone: what the user wants, and the right actions, are secret.
        self.public_tasks = {SPLIT: [{"task": each} for each in range(len(self._data.tasks))]}
        self._number, self._task = 0, Task(actions=[])
        self._user: User = scripted_user
        self._messages: list[dict[str, str]] = []  # as the user sees them

    def reset(  # type: ignore[override]  # an unknown argument is refused
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: int | None = None,
        user_messages: Sequence[str] | None = None,
        split: str = SPLIT,
        index: int | None = None,
    ) -> Observation:
        """Begin an episode.

        Args:
            seed: Chooses the task, if `task` is None.
            episode_id: The episode's name.
            task: The number of the task, from 0.
            user_messages: What the user says in turn, such as that of a recording.
            split: The split of the task, which must be ``test``.
            index: The number of the task, as in a server's list of tasks; instead of `task`.

        Returns:
            The policy as the system message, and the user's first message. Its metadata has the
            number of the ``task``, and who the ``user`` is: ``model``, ``replayed``, ``scripted``.

        Raises:
            InvalidArgumentError: There is no such task or split, or `user_messages` is invalid.
            EnvError: The user's model failed.
        """
        check_choice("split", split, (SPLIT,))
        number = index if task is None else task
        if number is None:
            number = random.Random(seed).randrange(len(self._data.tasks) or 1)
        chosen = task_of({"task": number}, self._data)
        who, user = choose_user(self, user_messages)
        greeting = {"role": "user", "content": GREETING}
        first = user(chosen.instruction, [greeting])  # if it fails, the old episode goes on
        self._messages = [greeting, {"role": "assistant", "content": first}]
        self._number, self._task, self._user = number, chosen, user
        self.database = Database(self._data)
        observation = self.begin(first, system=self._data.policy, episode_id=episode_id)
        observation.metadata.update(task=number, user=who)
        return observation

    def say(self, content: str) -> str:
        """Pass a message on to the user, and return the answer."""
        messages = [*self._messages, {"role": "user", "content": content}]
        answer = self._user(self._task.instruction, messages)
        self._messages = [*messages, {"role": "assistant", "content": answer}]
        if STOP in answer:
            self.end()
        return answer

    def score(self, action: ToolAction, observation: Observation) -> Observation:
        """Score a step; the last of `max_turns` ends the episode."""
        if observation.done:
            left = isinstance(observation, SayObservation)
            observation.metadata["ended"] = "user" if left else "transfer"
        elif self.state.step_count >= self.max_turns:
            self.end()
            observation.done = True
            observation.metadata["ended"] = "max_turns"
        observation.metadata["task"] = self._number
        return super().score(action, observation)

    def list_tools(self) -> list[Tool]:
        """Return the tools, with the published descriptions if the data has them."""
        published = {each["function"]["name"]: each["function"] for each in self._data.tools}
        return [_described(each, published.get(each.name)) for each in super().list_tools()]

    book_reservation = _on_database(bookings.book_reservation)
    calculate = _on_database(queries.calculate)
    cancel_reservation = _on_database(bookings.cancel_reservation)
    get_reservation_details = _on_database(queries.get_reservation_details)
    get_user_details = _on_database(queries.get_user_details)
    list_all_airports = _on_database(queries.list_all_airports)
    search_direct_flight = _on_database(queries.search_direct_flight)
    search_onestop_flight = _on_database(queries.search_onestop_flight)
    send_certificate = _on_database(bookings.send_certificate)
    think = _on_database(queries.think)
    transfer_to_human_agents = _on_database(queries.transfer_to_human_agents, ends=True)
    update_reservation_baggages = _on_database(bookings.update_reservation_baggages)
    update_reservation_flights = _on_database(bookings.update_reservation_flights)
    update_reservation_passengers = _on_database(bookings.update_reservation_passengers)


def _described(spec: Tool, published: dict[str, Any] | None) -> Tool:
    if published is None:
        return spec
    return Tool(
        name=spec.name,
        description=published["description"],
        input_schema=published["parameters"],
    )
