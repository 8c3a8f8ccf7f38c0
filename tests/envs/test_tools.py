"""`ToolEnvironment` and `tool`: an agent that acts by calling tools."""

import asyncio
import sys
from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from guerdon import Environment, Rubric, ToolEnvironment, tool
from guerdon.envs.runner import EnvAdapter
from guerdon.errors import EnvDefinitionError, EnvError, EpisodeError, InvalidArgumentError
from guerdon.types import (
    CallToolAction,
    CallToolsAction,
    ListToolsAction,
    SayAction,
    ToolAction,
    ToolImage,
    ToolResult,
)


class Errors(Rubric):
    """Minus one for each call that failed."""

    def forward(self, action, observation):
        outcomes = getattr(observation, "results", [observation])
        return -1.0 * sum(getattr(each, "is_error", False) for each in outcomes)


class User(BaseModel):
    name: str
    born: date | None = None


class Desk(ToolEnvironment):
    """A desk with users."""

    max_result_bytes = 1000

    def __init__(self):
        super().__init__(rubric=Errors())

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.users = {"ann": User(name="ann", born=date(2000, 1, 2))}
        self.is_open = False
        return self.begin("Help ann.", system="Be brief.", episode_id=episode_id)

    def say(self, content):
        return None if content == "bye" else f"You said {content}."

    @tool
    def get_user(self, name: str, fields: Literal["all", "name"] = "all") -> User:
        """Look a user up,
        by name.

        Args:
            name: The user's name,
                in lower case.
            fields: Which fields.

        Returns:
            The user.
        """
        return self.users[name]

    @tool
    def add(self, a: int, b: int = 1) -> int:
        return a + b

    @tool(ends=True, cost=0.5)
    def finish(self, ok: bool = True) -> str:
        if not ok:
            raise ValueError("not yet")
        return "done"

    @tool
    def open_drawer(self) -> None:
        self.is_open = True

    @tool(when=lambda self: self.is_open, name="take-pen")
    def take_pen(self) -> str:
        return "a pen"

    @tool
    def returns(self, what: str) -> Any:
        return {
            "nan": float("nan"),
            "object": object(),
            "large": "x" * 2000,
            "image": [ToolImage.of(b"abc"), "a picture"],
            "list": [User(name="bo")],
            "none": None,
        }[what]

    @tool
    def raises(self, what: str) -> None:
        if what == "exit":
            sys.exit(3)
        raise {"value": ValueError("wrong"), "silent": KeyError(), "env": EnvError("lost")}[what]


def call(name, /, **arguments):
    return CallToolAction(tool_name=name, arguments=arguments)


@pytest.fixture
def desk():
    with Desk() as desk:
        desk.reset(episode_id="e1")
        yield desk


def outcome(observation):
    return observation.text, observation.reward, observation.done


def test_tool_environment_reset_returns_the_messages_and_begins_the_state(desk):
    observation = desk.reset(episode_id="e2")
    assert observation.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Help ann."},
    ]
    assert desk.state.model_dump() == {"episode_id": "e2", "step_count": 0}


def test_tool_environment_list_tools_has_schemas_of_types_and_docstrings(desk):
    listed = {each.name: each for each in desk.step(ListToolsAction()).tools}
    assert list(listed) == ["get_user", "add", "finish", "open_drawer", "returns", "raises"]
    spec = listed["get_user"]
    assert spec.description == "Look a user up, by name."
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The user's name, in lower case."},
            "fields": {
                "type": "string",
                "enum": ["all", "name"],
                "default": "all",
                "description": "Which fields.",
            },
        },
        "required": ["name"],
    }
    assert listed["open_drawer"].input_schema == {"type": "object", "properties": {}}
    assert desk.tools[0]["function"]["parameters"] == spec.input_schema


def test_tool_environment_list_tools_takes_no_step_and_has_no_reward(desk):
    observation = desk.step(ListToolsAction())
    assert (observation.reward, observation.done, desk.state.step_count) == (None, False, 0)
    with Desk() as fresh:
        fresh.is_open = False
        assert fresh.step(ListToolsAction()).tools


def test_tool_environment_a_call_returns_the_value_as_text_and_data(desk):
    observation = desk.step(call("get_user", name="ann"))
    assert outcome(observation) == ('{"name": "ann", "born": "2000-01-02"}', 0.0, False)
    assert observation.result.structured_content == {"name": "ann", "born": "2000-01-02"}
    assert desk.step(call("add", a=2)).result.data == 3
    assert desk.state.step_count == 2


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "message"),
    [
        ("fly", {}, "tool_not_found", "there is no tool 'fly'; the tools are get_user, add,"),
        ("take-pen", {}, "tool_not_found", "there is no tool 'take-pen'"),
        ("add", {"a": "x"}, "invalid_args", "a: Input should be a valid integer"),
        ("add", {}, "invalid_args", "a: Field required"),
        ("add", {"a": 1, "c": 2}, "invalid_args", "c: Extra inputs are not permitted"),
        ("get_user", {"name": "bo"}, "execution_error", "'bo'"),
        ("raises", {"what": "value"}, "execution_error", "wrong"),
        ("raises", {"what": "silent"}, "execution_error", "KeyError"),
        ("raises", {"what": "exit"}, "execution_error", "the tool called sys.exit(3)"),
        ("returns", {"what": "nan"}, "execution_error", "the result can't be sent: it has NaN"),
        ("returns", {"what": "object"}, "execution_error", "the result can't be sent: Unable"),
        (
            "returns",
            {"what": "large"},
            "execution_error",
            "the result has 4092 bytes, more than 1000",
        ),
    ],
)
def test_tool_environment_errors_of_calls_are_results(desk, name, arguments, kind, message):
    observation = desk.step(call(name, **arguments))
    assert observation.error.error_type == kind
    assert observation.text.startswith(message)
    assert (observation.reward, observation.done) == (-1.0, False)
    assert desk.step(call("add", a=1)).text == "2"


class Broken(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Extremes(ToolEnvironment):
    """Tools with results and errors that are hard to send."""

    max_result_bytes = 20_000

    def __init__(self):
        super().__init__(rubric=Errors())

    @tool
    def give(self, what: str) -> Any:
        """Return or raise something."""
        if what == "long error":
            raise ValueError("x" * 10**6)
        if what == "no text":
            raise Broken
        if what == "surrogate error":
            raise ValueError("\ud800")
        results = {
            "surrogate": "\ud800",
            "digits": 10**5000,
            "data": ToolResult(data="x" * 10**6),
            "umlauts": "ä" * 10**4,
        }
        return results[what]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("long error", "x" * 100),
        ("no text", "Broken"),
        ("surrogate error", "?"),
        ("surrogate", "the result can't be sent"),
        ("digits", "the result can't be sent: it has NaN, infinity or an integer of too many"),
        ("data", "the result has 1000"),
        ("umlauts", "the result has 2"),
    ],
)
def test_tool_environment_errors_of_extreme_values_can_be_sent(what, message):
    environment = Extremes()
    environment.reset()
    observation = environment.step(call("give", what=what))
    assert observation.error.error_type == "execution_error"
    assert observation.text.startswith(message)
    assert len(observation.model_dump_json()) < 20_000


class Waits(ToolEnvironment):
    """An async tool."""

    def __init__(self):
        super().__init__(rubric=Errors())

    @tool
    async def wait(self) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return "waited"


def test_tool_environment_step_and_call_tool_wait_for_async_tools():
    environment = Waits()
    environment.reset()
    assert environment.step(call("wait")).text == "waited"
    assert environment.call_tool("wait") == "waited"


def test_tool_environment_arguments_that_are_no_json_are_an_error_for_the_agent(desk):
    action = CallToolAction(tool_name="add", arguments_error="the arguments are not valid JSON")
    observation = desk.step(action)
    assert (observation.error.error_type, observation.text) == (
        "invalid_args",
        "the arguments are not valid JSON",
    )


def test_tool_environment_env_error_of_a_tool_is_a_failure_of_the_step(desk):
    with pytest.raises(EnvError, match="lost"):
        desk.step(call("raises", what="env"))


def test_tool_environment_a_tool_that_ends_the_episode_does_so_if_it_succeeds(desk):
    observation = desk.step(call("finish", ok=False))
    assert outcome(observation) == ("not yet", -1.0, False)
    observation = desk.step(call("finish"))
    assert outcome(observation) == ("done", 0.0, True)
    assert observation.metadata["tool_cost"] == 0.5
    with pytest.raises(EpisodeError, match="the episode has ended; reset begins one"):
        desk.step(call("add", a=1))


def test_tool_environment_a_step_before_reset_is_refused():
    with Desk() as desk, pytest.raises(EpisodeError, match="was never begun"):
        desk.step(call("add", a=1))


def test_tool_environment_tools_are_visible_when_their_condition_is_true(desk):
    observation = desk.step(call("open_drawer"))
    assert "take-pen" in observation.metadata["tools"]
    assert outcome(desk.step(call("take-pen"))) == ("a pen", 0.0, False)


def test_tool_environment_several_calls_of_a_turn_are_one_step(desk):
    calls = [call("add", a=1), call("fly"), call("finish"), call("add", a=2)]
    observation = desk.step(CallToolsAction(calls=calls))
    assert [each.text for each in observation.results] == [
        "2",
        "there is no tool 'fly'; the tools are get_user, add, finish, open_drawer, returns, raises",
        "done",
        "not called: the episode has ended",
    ]
    assert (observation.reward, observation.done, desk.state.step_count) == (-2.0, True, 1)


def test_tool_environment_calls_beyond_max_calls_are_not_made(desk):
    observation = desk.step(CallToolsAction(calls=[call("add", a=1)] * 1000))
    texts = [each.text for each in observation.results]
    assert texts[:128] == ["2"] * 128
    assert set(texts[128:]) == {"not called: a turn may have at most 128 calls"}


def test_tool_environment_say_answers_a_message_or_ends_the_episode(desk):
    observation = desk.step(SayAction(content="hello"))
    assert observation.messages == [{"role": "user", "content": "You said hello."}]
    observation = desk.step(SayAction(content="bye"))
    assert (observation.messages, observation.done) == ([], True)


def test_tool_environment_results_are_images_lists_and_nothing(desk):
    image = desk.step(call("returns", what="image"))
    assert [each["type"] for each in image.result.content] == ["image", "text"]
    assert image.result.content[0] == {"type": "image", "data": "YWJj", "mimeType": "image/png"}
    assert desk.step(call("returns", what="list")).result.data == [{"name": "bo", "born": None}]
    assert desk.step(call("returns", what="none")).text == ""


def test_tool_environment_call_tool_calls_without_a_step(desk):
    assert desk.call_tool("add", a=2) == 3
    assert desk.state.step_count == 0
    with pytest.raises(InvalidArgumentError, match="there is no tool 'fly'"):
        desk.call_tool("fly")
    with pytest.raises(InvalidArgumentError, match="add: a: Field required"):
        desk.call_tool("add")


def test_tool_environment_async_tools_run_in_step_and_step_async():
    class Slow(ToolEnvironment):
        tool_timeout_s = 0.05

        def __init__(self):
            super().__init__(rubric=Errors())

        async def say(self, content):
            return content.upper()

        @tool
        async def wait(self, seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "waited"

        @tool
        def now(self) -> str:
            return "now"

        @tool
        async def fails(self) -> None:
            raise TimeoutError("its own")

    async def main():
        adapter = EnvAdapter(Slow())
        adapter.reset()
        calls = [call("wait", seconds=0), call("now"), call("wait", seconds=30), call("fails")]
        seen = await adapter.environment.step_async(CallToolsAction(calls=calls))
        assert [each.text for each in seen.results] == [
            "waited",
            "now",
            "wait took longer than 0.05 s",
            "its own",
        ]
        kinds = [each.error and each.error.error_type for each in seen.results]
        assert kinds == [None, None, "timeout", "execution_error"]
        said = await adapter.environment.step_async(SayAction(content="hi"))
        assert said.messages[0]["content"] == "HI"

    asyncio.run(main())


def test_tool_environment_subclasses_replace_and_inherit_tools():
    class Other(Desk):
        @tool
        def add(self, a: int, b: int) -> int:
            """Multiply."""
            return a * b

        get_user = None

    with Other() as other:
        other.reset()
        assert other.step(call("add", a=3, b=4)).text == "12"
        assert "get_user" not in [each.name for each in other.list_tools()]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: tool(lambda self, a: a, name="a"), "the tool a: annotate `a` with its type"),
        (
            lambda: tool(lambda self: 0, name="reset"),
            "must not be one of close, reset",
        ),
        (lambda: tool(lambda self: 0, name="a b"), "1 to 64 letters, digits, _ or -"),
        (lambda: tool(lambda self: 0), "1 to 64 letters"),
    ],
)
def test_tool_invalid_definitions_are_refused(define, message):
    with pytest.raises(EnvDefinitionError, match=message):
        define()


def test_tool_unreadable_types_are_refused():
    def variadic(self, *names: str): ...

    def unknown(self, a: "Missing"): ...  # noqa: F821

    def opaque(self, a: Environment): ...

    with pytest.raises(EnvDefinitionError, match="can't be passed by name"):
        tool(variadic)
    with pytest.raises(EnvDefinitionError, match="the types of the tool unknown can't be read"):
        tool(unknown)
    with pytest.raises(EnvDefinitionError, match="the arguments of the tool opaque"):
        tool(opaque)
    with pytest.raises(InvalidArgumentError, match="`cost` must be"):
        tool(cost=-1.0)


def test_tool_action_model_validate_returns_the_class_of_the_type():
    action = ToolAction.model_validate({"type": "call_tool", "tool_name": "add"})
    assert action == CallToolAction(tool_name="add")
    assert ToolAction.model_validate({"type": "message", "content": "x"}) == SayAction(content="x")
    with pytest.raises(ValueError, match="'list_tools', 'call_tool', 'call_tools', 'message'"):
        ToolAction.model_validate({"type": "fly"})
