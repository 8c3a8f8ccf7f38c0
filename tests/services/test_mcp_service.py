"""What a call of an MCP tool returns, and the end of a program's stderr."""

import asyncio
import os

import mcp
import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from guerdon.errors import ServiceError, ServiceTimeoutError, ServiceUnavailableError
from guerdon.services.mcp_service import answer_of, failure
from guerdon.services.mcp_transport import STDERR_KEPT, StderrTail


def text(content):
    return TextContent(type="text", text=content)


IMAGE = ImageContent(type="image", data="", mime_type="image/png")


@pytest.mark.parametrize(
    ("content", "structured", "given"),
    [
        ([text("0.5")], {"score": 0.5}, {"score": 0.5}),
        ([text("good")], None, "good"),
        ([text("one"), text("two")], None, "one\ntwo"),
        ([], None, ""),
        ([text("good")], {"result": "good"}, "good"),
        ([text("0.5")], {"result": 0.5}, {"result": 0.5}),
        ([text("good")], {"result": "better"}, {"result": "better"}),
        ([text("[1, 2]")], [1, 2], {"result": [1, 2]}),
        ([IMAGE], {"score": 0.5}, {"score": 0.5}),
        ([text('{"score": 0.5}')], None, {"score": 0.5}),
        ([text('{"score": 0.5}')], {"result": '{"score": 0.5}'}, '{"score": 0.5}'),
        ([text("[0.5]")], None, "[0.5]"),
        ([text('{"score": NaN}')], None, '{"score": NaN}'),
    ],
    ids=[
        "object",
        "text",
        "texts",
        "nothing",
        "-> str",
        "-> float",
        "other",
        "list",
        "image too",
        "-> dict",
        "-> str of an object",
        "text of a list",
        "not JSON",
    ],
)
def test_answer_of_returns_a_dictionary_or_text(content, structured, given):
    result = CallToolResult(content=content, structured_content=structured)
    assert answer_of("judge", "judge", result) == given


def test_answer_of_rejects_content_that_is_not_text():
    result = CallToolResult(content=[text("see"), IMAGE])
    with pytest.raises(ServiceError, match="returned unsupported content, image") as caught:
        answer_of("painter", "paint", result)
    assert caught.value.service == "painter"


def test_answer_of_raises_the_message_of_a_tool():
    result = CallToolResult(content=[text("no such file")], is_error=True)
    with pytest.raises(ServiceError, match="service 'judge': rate failed: no such file"):
        answer_of("judge", "rate", result)
    with pytest.raises(ServiceError, match="failed: without a message"):
        answer_of("judge", "rate", CallToolResult(content=[], is_error=True))


def test_answer_of_shortens_a_long_message():
    result = CallToolResult(content=[text("x" * 100_000)], is_error=True)
    with pytest.raises(ServiceError) as caught:
        answer_of("judge", "rate", result)
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (mcp.MCPError(-32000, "Connection closed"), ServiceUnavailableError),
        (mcp.MCPError(-32001, "too slow"), ServiceTimeoutError),
        (mcp.MCPError(-32602, "no such tool"), ServiceError),
        (mcp.MCPError(-32603, "HTTP 503", {"http_status": 503}), ServiceUnavailableError),
        (mcp.MCPError(-32603, "HTTP 429", {"http_status": 429}), ServiceUnavailableError),
        (mcp.MCPError(-32603, "HTTP 401", {"http_status": 401}), ServiceUnavailableError),
        (mcp.MCPError(-32603, "odd", ["data"]), ServiceError),
    ],
    ids=["closed", "late", "refused", "503", "429", "401", "odd"],
)
def test_failure_has_the_class_of_the_error(error, kind):
    raised = failure("judge", error)
    assert type(raised) is kind
    assert str(raised) == f"service 'judge': {error.message}"


def test_stderr_tail_keeps_the_end():
    async def write():
        with StderrTail() as tail:
            for number in range(10_000):
                os.write(tail.file.fileno(), b"line %d\n" % number)
                if number % 1000 == 0:
                    await asyncio.sleep(0)  # the loop reads
            return tail

    text = asyncio.run(write()).text()
    assert text.endswith("line 9999")
    assert len(text) <= STDERR_KEPT
    assert "line 0\n" not in text


def test_stderr_tail_of_nothing_is_empty():
    assert StderrTail().text() == ""


def test_stderr_tail_does_not_wait_for_a_program_that_outlives_it():
    async def outlive():
        with StderrTail() as tail:
            theirs = os.dup(tail.file.fileno())
            os.write(theirs, b"still here")
        return tail, theirs

    tail, theirs = asyncio.run(outlive())
    os.close(theirs)
    assert tail.text() == "still here"
