"""Conversations in other formats, read as OpenAI's."""

import json

import pytest

from guerdon import CallBudget, CalledTool, Rollout, ToolErrors, score_rollouts
from guerdon.errors import RolloutError
from guerdon.types import Message, conversation_problems, read_messages

USER = {"role": "user", "content": "Book HAT170."}
DONE = {"role": "assistant", "content": "Done."}
ARGUMENTS = {"flight": "HAT170", "bags": 1}
TEXT = json.dumps(ARGUMENTS)
HERMES = json.dumps({"name": "book", "arguments": ARGUMENTS})


def calls(*made, **fields):
    return {"role": "assistant", "tool_calls": list(made), **fields}


def says(content):
    return {"role": "assistant", "content": content}


def openai(id="1", **fields):
    return {"id": id, "function": {"name": "book", "arguments": TEXT}, **fields}


def tool(**fields):
    return {"role": "tool", "content": "%", **fields}


def user(content):
    return {"role": "user", "content": content}


OLDER = {"name": "book", "arguments": TEXT}
USE = {"type": "tool_use", "id": "1", "name": "book", "input": ARGUMENTS}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "%"}
ITEM = {"type": "function_call", "id": "f", "call_id": "1", "name": "book", "arguments": TEXT}
ITEMS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Which?"}]},
    ITEM,
    {"type": "function_call_output", "call_id": "1", "output": "%"},
]

# What follows the user's message and precedes the last one; % is the result of the call.
FORMATS = {
    "openai": [calls(openai(), content=None), tool(tool_call_id="1")],
    "openai, arguments as an object": [
        calls({"function": {"name": "book", "arguments": ARGUMENTS}}),
        tool(),
    ],
    "flat": [calls({"id": "1", "name": "book", "arguments": ARGUMENTS}), tool(tool_call_id="1")],
    "flat, arguments as text": [calls({"name": "book", "arguments": TEXT}, content=""), tool()],
    "flat, input": [calls({"id": "1", "name": "book", "input": ARGUMENTS}), tool(tool_call_id="1")],
    "langchain": [
        calls({"name": "book", "args": ARGUMENTS, "id": "1", "type": "tool_call"}, content=""),
        tool(tool_call_id="1"),
    ],
    "parameters": [calls({"function": {"name": "book", "parameters": ARGUMENTS}}), tool()],
    "function_call": [
        {"role": "assistant", "content": None, "function_call": OLDER},
        {"role": "function", "name": "book", "content": "%"},
    ],
    "role function": [calls(openai()), {"role": "function", "name": "book", "content": "%"}],
    "tool_calls and function_call": [calls(openai(), function_call=OLDER), tool(tool_call_id="1")],
    "anthropic": [
        says([{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Yes"}, USE]),
        user([RESULT, {"type": "text", "text": "Thanks"}]),
    ],
    "openai with anthropic's result": [calls(openai(), content=""), user([RESULT])],
    "anthropic, result in parts": [
        says([USE]),
        user([{**RESULT, "content": [{"type": "text", "text": "%"}]}]),
    ],
    "tool_calls and tool_use": [
        calls({"name": "book", "args": ARGUMENTS, "id": "1"}, content=[USE]),
        tool(tool_call_id="1"),
    ],
    "hermes": [
        says(f"<think>A <tool_call>?</think>\n<tool_call>\n{HERMES}\n</tool_call>"),
        user("<tool_response>\n%\n</tool_response>"),
    ],
    "hermes, as Python": [
        says(f"Yes. <tool_call>{json.loads(HERMES)}</tool_call>"),
        tool(content="<tool_response>%</tool_response>"),
    ],
    "hermes, result as JSON": [
        says(f"<tool_call>{HERMES}"),
        tool(content='<tool_response>{"name": "book", "content": "%"}</tool_response>'),
    ],
    "hermes and tool_calls": [
        calls(openai(), content=f"<tool_call>{HERMES}</tool_call>"),
        tool(tool_call_id="1"),
    ],
    "qwen coder": [
        says(
            "<tool_call>\n<function=book>\n<parameter=flight>\nHAT170\n</parameter>\n"
            "<parameter=bags>\n1\n</parameter>\n</function>\n</tool_call>"
        ),
        tool(),
    ],
    "glm": [
        says(
            "<tool_call>book\n<arg_key>flight</arg_key>\n<arg_value>HAT170</arg_value>\n"
            "<arg_key>bags</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
        ),
        tool(),
    ],
    "mistral": [says(f"[TOOL_CALLS] [{HERMES}]"), tool()],
    "mistral, arguments": [says(f"[TOOL_CALLS]book[CALL_ID]a1[ARGS]{TEXT}</s>"), tool()],
    "llama": [says(f"<|python_tag|>{HERMES}<|eom_id|>"), {"role": "ipython", "content": "%"}],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"name": "book", "args": ARGUMENTS}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "book", "response": {"result": "%"}}}],
        },
    ],
    "bedrock": [
        says([{"toolUse": {"toolUseId": "1", "name": "book", "input": ARGUMENTS}}]),
        user([{"toolResult": {"toolUseId": "1", "content": [{"text": "%"}]}}]),
    ],
    "ai sdk": [
        says([{"type": "tool-call", "toolCallId": "1", "toolName": "book", "input": ARGUMENTS}]),
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "1",
                    "toolName": "book",
                    "output": {"type": "text", "value": "%"},
                }
            ],
        },
    ],
    "responses": ITEMS,
}


def conversation(between, result="booked"):
    return json.loads(json.dumps([USER, *between, DONE]).replace("%", result))


def score(rubric, messages):
    [row] = score_rollouts(rubric, [Rollout.from_row({"id": "a", "messages": messages})])
    return row["score"] if row["is_score_valid"] else row["error"]


@pytest.mark.parametrize("between", FORMATS.values(), ids=FORMATS)
def test_read_messages_calls_and_results_of_all_formats_are_seen(between):
    good, bad = conversation(between), conversation(between, "Error: full")
    assert score(CalledTool("book", ARGUMENTS, error_pattern="^Error"), good) == 1.0
    assert score(CalledTool("book", error_pattern="^Error"), bad) == 0.0
    assert score(ToolErrors(error_pattern="^Error"), good) == 2.0
    assert score(ToolErrors(error_pattern="^Error"), bad) == 1.0
    assert score(CallBudget(0), good) == 0.0
    assert score(CallBudget(1), good) == 1.0
    assert conversation_problems(read_messages(good)) == []


@pytest.mark.parametrize("between", FORMATS.values(), ids=FORMATS)
def test_read_messages_reads_what_it_has_written(between):
    messages = read_messages(conversation(between))
    written = [message.to_openai() for message in messages]
    assert json.loads(json.dumps(written)) == written
    assert read_messages(written) == messages
    assert [message.role for message in messages if message.role == "tool"] == ["tool"]


@pytest.mark.parametrize(
    "message",
    [
        says("<function_calls>\n<invoke name='book'>"),
        says('<function=book>{"flight": "HAT170"}</function>'),
        says("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>book"),
        says('<|channel|>commentary to=functions.book <|message|>{"flight": "HAT170"}<|call|>'),
        calls({"foo": 1}),
        calls({"function": {"name": None}}),
        {"role": "assistant", "content": None, "function_call": {"arguments": "{}"}},
        says([{"type": "tool_use", "input": {}}]),
        says([{"type": "computer_call", "name": "book"}]),
        says([{"type": "text", "text": "Hi"}, {"type": "web_search_call", "id": "1"}]),
        says([{"type": "tool-book", "toolCallId": "1", "input": ARGUMENTS}]),
        says([USE | {"type": "text"}, {"executableCode": {"code": "book()"}}]),
        says([{"type": "hologram", "data": 1}]),
        says('<functioncall> {"name": "book"}'),
        says('<｜DSML｜function_calls>\n<｜DSML｜invoke name="book">'),
        says("<|start|>assistant to=functions.book<|channel|>commentary json<|message|>{}"),
        says('<|START_ACTION|>[{"tool_name": "book"}]<|END_ACTION|>'),
        says('{"name": "book", "parameters": {"flight": "HAT170"}}'),
        says('[book(flight="HAT170")]'),
        says("Booking.") | {"toolInvocations": [{"toolName": "book"}]},
        says("Booking.") | {"tool_call": OLDER},
        says('<tool>\n{"name": "book", "args": {}}\n</tool>'),
        says("<search>flights</search>"),
        says('[{"name": "book", "arguments": {"flight": "HAT170"}}]'),
        says('<TOOLCALL>[{"name": "book"}]</TOOLCALL>'),
        says('<longcat_tool_call>{"name": "book"}</longcat_tool_call>'),
        says('<steptml:invoke name="book"></steptml:invoke>'),
        says("I book.\nAction: book\nAction Input: {}"),
        says("```tool_code\nbook()\n```"),
    ],
)
def test_read_messages_calls_in_an_unknown_format_make_the_row_of_a_tool_rubric_invalid(message):
    messages = [USER, message, DONE]
    for rubric in CalledTool("book"), CallBudget(0), ToolErrors():
        assert "a tool call in a format that isn't read: " in score(rubric, messages)
    [note] = conversation_problems(read_messages(messages))
    assert note.startswith("messages[1]: a tool call in a format that isn't read: ")


@pytest.mark.parametrize(
    "text",
    [
        "Write calls as `<tool_call>`.",
        "<think>I could write <tool_call> or <function=book>.</think>No.",
        "a_b < c_d",
    ],
)
def test_read_messages_a_mention_of_a_call_is_none(text):
    messages = [USER, says(text)]
    assert score(CallBudget(0), messages) == 1.0
    assert read_messages(messages)[1].to_openai() == says(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<tool_call>{"name": "book", "arguments": {"flight": </tool_call>', "book"),
        ("<tool_call>book it</tool_call>", ""),
        ('<tool_call>{"arguments": {}}</tool_call>', ""),
        ("<tool_call></tool_call>", ""),
        ("[TOOL_CALLS] []", ""),
    ],
)
def test_read_messages_a_call_that_a_model_wrote_wrongly_is_one_that_failed(text, name):
    messages = [USER, says(text), tool(), DONE]
    [call] = read_messages(messages)[1].tool_calls
    assert call["function"]["name"] == name
    assert score(CallBudget(0), messages) == 0.0
    assert score(ToolErrors(), messages) == 1.0
    assert score(CalledTool("book"), messages) == 0.0


def test_read_messages_several_calls_and_results_of_one_message():
    second = {**USE, "id": "2", "input": {}, "cache_control": {"type": "ephemeral"}}
    failed = {**RESULT, "tool_use_id": "2", "content": "full", "is_error": True}
    _, assistant, one, two, rest, _ = read_messages(
        [USER, says([USE, second]), user([failed, RESULT, {"type": "text", "text": "Go on"}]), DONE]
    )
    assert [call["id"] for call in assistant.tool_calls] == ["1", "2"]
    assert assistant.tool_calls[1]["cache_control"] == {"type": "ephemeral"}
    assert (one.tool_call_id, one.is_error, two.tool_call_id) == ("2", True, "1")
    assert (rest.role, rest.text) == ("user", "Go on")

    text = f"<tool_call>{HERMES}</tool_call>\n<tool_call>{HERMES}</tool_call>"
    answers = "<tool_response>a</tool_response>\n<tool_response>b</tool_response>"
    _, assistant, one, two, _ = read_messages([USER, says(text), user(answers), DONE])
    assert assistant.content == text
    assert len(assistant.tool_calls) == 2
    assert (one.role, one.text, two.role, two.text) == ("tool", "a", "tool", "b")


@pytest.mark.parametrize(
    ("response", "text", "is_error"),
    [
        ({"output": "booked"}, "booked", False),
        ({"error": "full"}, "full", True),
        ({"seats": 2, "cabin": "economy"}, '{"seats": 2, "cabin": "economy"}', False),
        ([1, 2], "[1, 2]", False),
        (7, "7", False),
        ("", "", False),
    ],
)
def test_read_messages_a_result_that_is_no_text_is_its_json(response, text, is_error):
    part = {"functionResponse": {"name": "book", "response": response}}
    [message] = read_messages([user([part])])
    assert (message.role, message.text, message.get("is_error", False)) == ("tool", text, is_error)


def test_read_messages_keeps_other_parts_of_a_content():
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    odd = {"type": "hologram", "data": 1}
    [message] = read_messages([says([thinking, USE, odd])])
    assert message.content == [thinking, odd]
    assert message.reasoning == "Hm"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (5, r"messages\[1\]\.tool_calls: .* not 5"),
        ([5], r"messages\[1\]\.tool_calls\.0: .* not 5"),
        ({"name": "book"}, r"messages\[1\]\.tool_calls: .* not {'name': 'book'}"),
    ],
)
def test_read_messages_names_tool_calls_that_are_no_list_of_objects(given, error):
    with pytest.raises(RolloutError, match=error):
        Rollout.from_row({"messages": [USER, {"role": "assistant", "tool_calls": given}]})


def test_read_messages_names_the_place_of_a_message_in_what_was_given():
    messages = [says([USE]), user([RESULT, RESULT]), {"role": "robot"}]
    with pytest.raises(RolloutError, match=r"messages\[2\]\.role: .* not 'robot'"):
        Rollout.from_row({"messages": messages})


@pytest.mark.parametrize("id", [None, "1"])
def test_result_without_a_call_makes_the_row_of_a_tool_rubric_invalid(id):
    result = {"role": "tool", "content": "booked", "tool_call_id": id}
    for rubric in CalledTool("book"), CallBudget(0), ToolErrors():
        assert "no call has the result 'booked'" in score(
            rubric, [USER, says("book!"), result, DONE]
        )
    late = [
        USER,
        calls(openai()),
        tool(tool_call_id="1"),
        says("Wait."),
        tool(tool_call_id="1"),
        DONE,
    ]
    assert score(CallBudget(1), late) == 1.0


@pytest.mark.parametrize(
    "part", [{"type": "refusal"}, {"type": "image_url"}, {"inlineData": {}}, {"text": "Hi"}]
)
def test_parts_of_data_are_no_calls(part):
    assert score(CallBudget(0), [USER, says([part])]) == 1.0


def test_read_messages_a_custom_tool_receives_its_text_as_input():
    call = {"id": "1", "type": "custom", "custom": {"name": "book", "input": "HAT170"}}
    messages = [USER, calls(call), tool(tool_call_id="1"), DONE]
    assert score(CalledTool("book", {"input": "HAT170"}), messages) == 1.0


def test_message_that_was_not_read_by_read_messages_is_refused_by_tool_rubrics():
    messages = [Message.model_validate(says([USE])), Message.model_validate(DONE)]
    assert "a tool call in a format that isn't read" in score(CallBudget(0), messages)
