"""`TauChatEnvironment`: an agent at a booking desk talks with a traveller, whom a model plays.

The environment calls the service ``user`` and doesn't know what is behind that name: a language
model or a tool of an MCP server, as ``mcp_services`` of the reward's file has it. The same is true
of the service ``judge``, which the file names for the end of an episode. Serve it, with models
behind both names::

    guerdon serve examples/tau_chat --reward examples/tau_chat/reward.yaml
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from examples.tau_chat.desk import TOOLS, Desk, DeskError
from examples.tau_chat.models import ChatAction, ChatObservation, ChatState
from examples.tau_chat.scenario import GOODBYE, GREETING, RULES, SETTLED, USER, open_desk
from guerdon import Environment
from guerdon.errors import EpisodeError, InvalidArgumentError, ServiceError

__all__ = ["TauChatEnvironment"]

Message = dict[str, str]


class TauChatEnvironment(Environment[ChatAction, ChatObservation, ChatState]):
    """A traveller wants another flight; the agent has tools for that, and rules.

    A step is something said to the traveller, with the answer, or the call of a tool. Where the
    traveller's model gives no answer, the step raises what went wrong, nothing has been said, and
    the same step can be taken again.

    The reward and the services come from a file such as ``reward.yaml``.

    Example:
        >>> from examples.tau_chat.environment import TauChatEnvironment
        >>> from examples.tau_chat.models import ChatAction
        >>> from guerdon.envs import ConfiguredEnv
        >>> def main():
        ...     with ConfiguredEnv(TauChatEnvironment, "examples/tau_chat/reward.yaml") as make:
        ...         environment = make()
        ...         print(environment.reset().content)
        ...         print(environment.step(ChatAction(content="The code, please?")).content)

    Args:
        max_steps: The steps after which a conversation is over, at least 1.

    Attributes:
        tools: What a model is told of the agent's tools.

    Raises:
        InvalidArgumentError: There would be no step.
    """

    tools = TOOLS

    def __init__(self, *, max_steps: int = 20) -> None:
        super().__init__()
        if max_steps < 1:
            raise InvalidArgumentError(f"max_steps is {max_steps}; it is at least 1")
        self.max_steps = max_steps
        self._desk: Desk | None = None
        self._talk: list[Message] = []  # as the traveller's model is asked: it is the assistant
        self._lines: list[str] = []
        self._state = ChatState()

    @property
    def state(self) -> ChatState:
        """Where the conversation stands."""
        return self._state

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ChatObservation:
        """Greet a traveller who calls.

        Args:
            seed: Not used: there is one traveller.
            episode_id: What to call the conversation.
            **kwargs: Not used.

        Returns:
            What the traveller says first, and the rules.

        Raises:
            ServiceError: The traveller's model gave no answer.
        """
        self._reset_rubric()
        self._desk, self._talk, self._lines = None, [], []
        self._state = ChatState(episode_id=episode_id or uuid4().hex)
        said = self._say(GREETING)
        self._desk = open_desk()
        return ChatObservation(speaker="user", content=said, rules=RULES)

    def step(
        self, action: ChatAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ChatObservation:
        """Say something to the traveller, or call a tool.

        Args:
            action: Which, and what.
            timeout_s: Not used; services have time limits of their own.
            **kwargs: Not used.

        Returns:
            The answer.

        Raises:
            EpisodeError: No conversation is under way.
            ServiceError: The traveller's model gave no answer.
            InvalidArgumentError: Nothing was said.
        """
        if self._desk is None or self._state.over:
            raise EpisodeError("no conversation is under way; call reset() to begin one")
        if action.type == "tool_call":
            observation = self._call(self._desk, action)
        elif action.content.strip():
            observation = ChatObservation(speaker="user", content=self._say(action.content))
        else:
            raise InvalidArgumentError("a message says something; its content is empty")
        self._state.step_count += 1
        left = GOODBYE in observation.content and observation.speaker == "user"
        self._state.over = left or self._state.step_count >= self.max_steps
        if self._state.over:
            observation.done = True
            observation.transcript = "\n".join(self._lines)
            observation._settled = self._desk.bookings == {SETTLED.code: SETTLED}
        return self.score(action, observation)

    def _say(self, text: str) -> str:
        """What the traveller answers; only then has anything been said."""
        talk = [*self._talk, {"role": "user", "content": text}]
        # The model remembers nothing: it is told everything each time.
        said = self.mcp.call_tool("user", messages=[{"role": "system", "content": USER}, *talk])
        if not isinstance(said, str) or not said.strip():
            raise ServiceError(f"the service 'user' said {said!r:.80}, not a text", service="user")
        self._talk = [*talk, {"role": "assistant", "content": said}]
        self._lines += [f"agent: {text}", f"traveller: {said}"]
        self._state.turns += 2
        return said

    def _call(self, desk: Desk, action: ChatAction) -> ChatObservation:
        refused = False
        try:
            if action.arguments_error is not None:
                raise DeskError(action.arguments_error)
            answer = desk.call(action.name, action.arguments)
        except DeskError as error:
            answer, refused = f"error: {error}", True
        self._lines.append(f"agent calls {action.name} {action.arguments}: {answer}")
        return ChatObservation(speaker="tool", content=answer, refused=refused)
