"""Tools of an environment: actions that call them, and observations with their results.

The names and fields are those of OpenEnv's MCP types, so that its clients and servers understand
them; `SayAction` and `CallToolsAction` are additions.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, JsonValue, PrivateAttr
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from guerdon.types.action import Action
from guerdon.types.observation import Observation

__all__ = [
    "CallToolAction",
    "CallToolObservation",
    "CallToolsAction",
    "CallToolsObservation",
    "ListToolsAction",
    "ListToolsObservation",
    "SayAction",
    "SayObservation",
    "Tool",
    "ToolAction",
    "ToolError",
    "ToolImage",
    "ToolOutcome",
    "ToolResult",
]

# Names that a tool must not have: those of an environment's own methods.
RESERVED = frozenset(("reset", "step", "state", "close"))

ErrorType = Literal[
    "execution_error", "invalid_args", "transport_error", "tool_not_found", "timeout"
]


class Tool(BaseModel):
    """The description of a tool, for the agent.

    Example:
        >>> from guerdon.types import Tool
        >>> Tool(name="look", description="Look around.", input_schema={"type": "object"}).name
        'look'

    Attributes:
        name: Its name.
        description: What it does.
        input_schema: The JSON Schema of its arguments.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str
    input_schema: dict[str, Any]

    def to_openai(self) -> dict[str, Any]:
        """Return the tool in the format of OpenAI's chat completions."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema,
        }
        return {"type": "function", "function": function}


# Actions ------------------------------------------------------------------------------------------


class ToolAction(Action):
    """What an agent does in a `ToolEnvironment`: one of the subclasses, by their `type`.

    Example:
        >>> from guerdon.types import ToolAction
        >>> ToolAction.model_validate({"type": "call_tool", "tool_name": "look"}).tool_name
        'look'
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if "type" in cls.model_fields or not cls.__subclasses__():  # which is rebuilt below
            return handler(source)
        kinds = {each.model_fields["type"].default: each for each in cls.__subclasses__()}
        choices = {name: handler.generate_schema(kind) for name, kind in kinds.items()}
        return core_schema.tagged_union_schema(choices, discriminator="type")


class ListToolsAction(ToolAction):
    """Asks which tools there are; it takes no step.

    Example:
        >>> from guerdon.types import ListToolsAction
        >>> ListToolsAction().type
        'list_tools'
    """

    type: Literal["list_tools"] = "list_tools"


class CallToolAction(ToolAction):
    """Calls a tool.

    Example:
        >>> from guerdon.types import CallToolAction
        >>> CallToolAction(tool_name="look", arguments={"direction": "north"}).arguments
        {'direction': 'north'}

    Attributes:
        tool_name: The tool's name.
        arguments: Its arguments by name.
        arguments_error: Why the arguments that a model has written can't be read; then the agent
            is sent this error, and the tool isn't called.
    """

    type: Literal["call_tool"] = "call_tool"
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    arguments_error: str = ""


class CallToolsAction(ToolAction):
    """Calls several tools in one turn, one after the other.

    Example:
        >>> from guerdon.types import CallToolAction, CallToolsAction
        >>> look = CallToolAction(tool_name="look")
        >>> len(CallToolsAction(calls=[look, look]).calls)
        2

    Attributes:
        calls: The calls.
    """

    type: Literal["call_tools"] = "call_tools"
    calls: list[CallToolAction]


class SayAction(ToolAction):
    """A message to the user, without a call.

    Example:
        >>> from guerdon.types import SayAction
        >>> SayAction(content="Which flight?").content
        'Which flight?'

    Attributes:
        content: The text.
    """

    type: Literal["message"] = "message"
    content: str


ToolAction.model_rebuild(force=True)


def calls_of(action: Any) -> list[CallToolAction]:
    """Return the calls of an action.

    Example:
        >>> [call.tool_name for call in calls_of(CallToolAction(tool_name="look"))]
        ['look']
    """
    if isinstance(action, CallToolAction):
        return [action]
    return action.calls if isinstance(action, CallToolsAction) else []


# Observations -------------------------------------------------------------------------------------


class ToolImage(BaseModel):
    """An image that a tool returns.

    Example:
        >>> from guerdon.types import ToolImage
        >>> ToolImage.of(b"...", "image/png").data
        'Li4u'

    Attributes:
        data: Its bytes in Base64.
        mime_type: Its type, such as ``image/png``.
    """

    model_config = ConfigDict(extra="forbid")

    data: str
    mime_type: str = "image/png"

    @classmethod
    def of(cls, data: bytes, mime_type: str = "image/png") -> ToolImage:
        """Return an image of bytes."""
        return cls(data=base64.b64encode(data).decode(), mime_type=mime_type)


class ToolResult(BaseModel):
    """What a tool returned, with the fields of MCP's result.

    Example:
        >>> from guerdon.types import ToolResult
        >>> ToolResult(content=[{"type": "text", "text": "7"}], data=7).text
        '7'

    Attributes:
        content: Blocks of text or images, as in MCP.
        structured_content: The value as a JSON object, if it isn't only text.
        data: The value.
        is_error: Whether the tool failed; then the content says why.
    """

    model_config = ConfigDict(extra="ignore")

    content: list[dict[str, Any]] = Field(default_factory=list)
    structured_content: dict[str, Any] | None = None
    data: JsonValue = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The blocks of text, as a model reads them."""
        return "\n".join(str(each["text"]) for each in self.content if each.get("type") == "text")


class ToolError(BaseModel):
    """Why a tool was not called, or has failed.

    Example:
        >>> from guerdon.types import ToolError
        >>> ToolError(error_type="tool_not_found", message="there is no tool 'fly'").error_type
        'tool_not_found'

    Attributes:
        error_type: ``execution_error``, ``invalid_args``, ``transport_error``,
            ``tool_not_found`` or ``timeout``.
        message: What the agent reads.
    """

    model_config = ConfigDict(extra="forbid")

    error_type: ErrorType
    message: str


class ToolOutcome(BaseModel):
    """The result of one call, or its error.

    Example:
        >>> from guerdon.types import ToolError, ToolOutcome
        >>> error = ToolError(error_type="timeout", message="look took longer than 5 s")
        >>> outcome = ToolOutcome(tool_name="look", error=error)
        >>> outcome.is_error, outcome.text
        (True, 'look took longer than 5 s')

    Attributes:
        tool_name: The tool's name.
        result: What it returned.
        error: Why it was not called, or has failed.
    """

    tool_name: str
    result: ToolResult | None = None
    error: ToolError | None = None
    _received: dict[str, Any] | None = PrivateAttr(None)

    @property
    def received(self) -> dict[str, Any] | None:
        """The arguments that the tool received if they differ from those of the call, else None.

        They are known where the call was made alone: they are not sent to clients.
        """
        return self._received

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return self.error is not None or (self.result is not None and self.result.is_error)

    @property
    def text(self) -> str:
        """What the agent reads."""
        if self.error is not None:
            return self.error.message
        return "" if self.result is None else self.result.text


class ListToolsObservation(Observation):
    """The answer to `ListToolsAction`.

    Example:
        >>> from guerdon.types import ListToolsObservation
        >>> ListToolsObservation(tools=[]).tools
        []

    Attributes:
        tools: The tools that the agent may call now.
    """

    tools: list[Tool]


class CallToolObservation(Observation, ToolOutcome):
    """The answer to `CallToolAction`.

    Example:
        >>> from guerdon.types import CallToolObservation
        >>> CallToolObservation(tool_name="look").is_error
        False
    """


class CallToolsObservation(Observation):
    """The answer to `CallToolsAction`.

    Example:
        >>> from guerdon.types import CallToolsObservation, ToolOutcome
        >>> CallToolsObservation(results=[ToolOutcome(tool_name="look")]).results[0].is_error
        False

    Attributes:
        results: An outcome for each call, in order.
    """

    results: list[ToolOutcome]


class SayObservation(Observation):
    """Messages for the agent: how an episode begins, or the answer to `SayAction`.

    Example:
        >>> from guerdon.types import SayObservation
        >>> SayObservation.of("Where to?").messages
        [{'role': 'user', 'content': 'Where to?'}]

    Attributes:
        messages: Messages in OpenAI's format.
    """

    messages: list[dict[str, Any]]

    @classmethod
    def of(cls, text: str, *, system: str | None = None) -> SayObservation:
        """Return a message of the user, after instructions if there are any."""
        first = [] if system is None else [{"role": "system", "content": system}]
        return cls(messages=[*first, {"role": "user", "content": text}])


def outcomes_of(observation: Any) -> list[ToolOutcome]:
    """Return the outcomes of the calls that an observation answers.

    Example:
        >>> [each.is_error for each in outcomes_of(CallToolObservation(tool_name="look"))]
        [False]
    """
    if isinstance(observation, CallToolsObservation):
        return observation.results
    return [observation] if isinstance(observation, CallToolObservation) else []


def result_of(value: Any) -> ToolResult:
    """Return the result for the value that a tool has returned.

    Example:
        >>> result_of({"seats": 3}).text
        '{"seats": 3}'

    Args:
        value: A text, an image, a list of both, None, or what JSON can represent; models too.

    Raises:
        ValueError: JSON can't represent it.
    """
    if isinstance(value, ToolResult):
        return value
    parts = value if _has_image(value) else [value]
    blocks = [_block(each) for each in parts if each is not None]
    if parts is value or isinstance(value, ToolImage):
        return ToolResult(content=blocks)
    if value is None or isinstance(value, str):
        return ToolResult(content=blocks, data=value)
    data = plain(value)
    structured = data if isinstance(data, dict) else {"result": data}
    return ToolResult(content=blocks, structured_content=structured, data=data)


def _has_image(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, ToolImage) for each in value)


def _block(value: Any) -> dict[str, Any]:
    if isinstance(value, ToolImage):
        return {"type": "image", "data": value.data, "mimeType": value.mime_type}
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    text.encode()  # raises for a surrogate, which JSON can't represent
    return {"type": "text", "text": text}


def plain(value: Any) -> Any:
    """Return a value in the types of JSON.

    Raises:
        ValueError: JSON can't represent it.
    """
    text = to_json(value, inf_nan_mode="constants")
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        raise ValueError("it has NaN, infinity or an integer of too many digits") from None
