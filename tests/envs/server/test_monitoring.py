"""Logs: an event and its fields, for people and for machines."""

import json
import logging
import math

import pytest

from guerdon.envs.server.monitoring import JsonFormatter, TextFormatter, log
from tests.envs.server.worlds import CLOSE, RESET, Echo, step


@pytest.fixture
def lines(alone, caplog):
    """What was logged, as lines of JSON that were read again."""
    caplog.set_level("DEBUG", logger="guerdon.server")

    def lines():
        texts = [JsonFormatter().format(each) for each in caplog.records if "server" in each.name]
        assert not any("\n" in each for each in texts)
        return [json.loads(each) for each in texts]

    return lines


def test_log_of_a_session(serve, lines):
    served = serve()
    client = served.client()
    client.ask(RESET)
    client.say(CLOSE)
    client.ended()
    served.empty()
    serving, opened, closed, *_ = [
        each for each in lines() if each["event"] in ("serving", "session opened", "session closed")
    ]
    assert serving["url"] == served.url
    assert (opened["event"], opened["sessions"]) == ("session opened", 1)
    assert (closed["event"], closed["reason"]) == ("session closed", "client closed")
    assert opened["session"] == closed["session"]
    for each in lines():
        assert set(each) >= {"time", "level", "logger", "event"}
        assert each["logger"] == "guerdon.server"


def test_log_of_a_failure_has_session_and_traceback(play, lines):
    class Wrong(Echo):
        def step(self, action, **kwargs):
            raise ValueError("no luck")

    client = play(Wrong).client()
    client.error(step())
    (failed,) = [each for each in lines() if each["event"] == "step failed"]
    assert failed["level"] == "warning"
    assert failed["error"] == "step: ValueError: no luck"
    assert isinstance(failed["session"], int)
    assert 'raise ValueError("no luck")' in failed["traceback"]


def test_log_of_many_failures_that_quote_large_actions_is_bounded(play, lines):
    class Quoting(Echo):
        def step(self, action, **kwargs):
            raise ValueError("x" * 100_000)

    client = play(Quoting).client()
    answers = [client.error(step()) for _ in range(20)]
    assert all(len(json.dumps(each)) < 3_000 for each in answers)
    logged = [each for each in lines() if each["event"] == "step failed"]
    assert len(logged) == 5
    assert sum(len(json.dumps(each)) for each in logged) < 100_000


def test_log_of_many_invalid_requests_is_bounded(serve, caplog):
    served = serve()
    for _ in range(20):
        raw = served.raw()
        raw.send(b"no HTTP\r\n\r\n")
        assert raw.status() == 400
    logged = [each for each in caplog.records if "Invalid HTTP request" in each.getMessage()]
    assert len(logged) == 5


def test_log_of_a_refusal(serve, lines):
    serve(token="secret").http.get("/metadata")
    (refused,) = [each for each in lines() if each["event"] == "refused"]
    assert (refused["status"], refused["path"]) == (401, "/metadata")


@pytest.mark.parametrize(
    "value",
    ["a\nb", "\ud800", object(), {1, 2}, b"x", None],
    ids=["lines", "surrogate", "object", "set", "bytes", "None"],
)
def test_json_formatter_writes_one_line_for_any_field(lines, value):
    log("event", level="warning", value=value)
    (line,) = lines()
    assert line["event"] == "event"
    assert "value" in line


def test_json_formatter_writes_valid_json_for_nan(alone, caplog):
    log("event", level="warning", value=math.nan)
    line = JsonFormatter().format(caplog.records[0])
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_json_formatter_keeps_the_standard_fields(lines):
    log("event", level="warning", logger="mine", time="now")
    (line,) = lines()
    assert line["logger"] == "guerdon.server"
    assert line["time"] != "now"


def test_text_formatter_writes_fields_and_traceback(alone, caplog):
    try:
        raise ValueError("no luck")
    except ValueError as error:
        log("step failed", level="warning", trace=error, session=3)
    text = TextFormatter().format(caplog.records[0])
    first, *rest = text.splitlines()
    assert "warning" in first
    assert first.endswith("step failed  session=3")
    assert rest[-1] == "  | ValueError: no luck"


def test_text_formatter_escapes_line_breaks_in_tracebacks(alone, caplog):
    try:
        raise ValueError("oops\n12:00:00 info    serving  \x1b[31murl=http://evil")
    except ValueError as error:
        log("step failed", level="warning", trace=error)
    _, *rest = TextFormatter().format(caplog.records[0]).splitlines()
    assert all(line.startswith("  | ") for line in rest)
    assert all(line.isprintable() for line in rest)


def test_text_formatter_escapes_line_breaks_in_fields(alone, caplog):
    log("refused", level="warning", path="/x\n12:00:00 info    serving")
    assert len(TextFormatter().format(caplog.records[0]).splitlines()) == 1


def test_log_formats_nothing_below_its_level(alone, caplog):
    caplog.set_level(logging.ERROR, logger="guerdon.server")
    log("event", level="warning")
    assert not caplog.records
