"""Loggers of steps: short messages, and few of one kind."""

import logging

import pytest

from guerdon import _logging
from guerdon._logging import shortened, step_logger
from guerdon.envs.server.monitoring import JsonFormatter, TextFormatter, log


@pytest.fixture
def logger():
    return step_logger("guerdon.test")


@pytest.fixture
def clock(monkeypatch):
    """A clock; set its first item."""
    now = [0.0]
    monkeypatch.setattr(_logging.time, "monotonic", lambda: now[0])
    return now


def test_shortened_keeps_both_ends():
    assert shortened("a" * 2000) == "a" * 2000
    text = shortened("a" * 1000 + "x" * 5 + "b" * 1000)
    assert text == "a" * 1000 + "… (5 characters left out) …" + "b" * 1000


@pytest.mark.parametrize("formatter", [logging.Formatter(), JsonFormatter(), TextFormatter()])
def test_step_logger_shortens_messages_fields_and_tracebacks(caplog, formatter):
    try:
        raise ValueError("x" * 4_000_000)
    except ValueError as error:
        log("step failed", level="warning", trace=error, error=str(error))
        step_logger("guerdon.test").error("%s", error)
    for record in caplog.records:
        assert len(formatter.format(record)) < 12_000
        assert "characters left out" in formatter.format(record)


def test_step_logger_counts_repeated_messages(logger, caplog, clock):
    for _ in range(300):
        logger.warning("%s failed: %s", "style", "no answer")
        logger.warning("%s failed: %s", "tests", "no answer")
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 10
    assert texts[0] == "style failed: no answer"
    assert texts[-1] == "tests failed: no answer (further ones like it are only counted for 60 s)"
    clock[0] = 61.0
    logger.warning("%s failed: %s", "style", "too late")
    assert caplog.messages[-1] == (
        "style failed: too late (and 295 more like the last ones in 61 s)"
    )


def test_step_logger_counts_classes_of_exceptions_in_arguments_separately(logger, caplog):
    for error in [OSError()] * 9 + [ValueError()] * 9:
        logger.warning("%s failed: %r", "style", error)
    assert sum("ValueError" in text for text in caplog.messages) == 5


def test_step_logger_raises_nothing_for_an_argument_that_cannot_be_shown(logger, monkeypatch):
    class Unprintable:
        def __repr__(self):
            raise ZeroDivisionError

    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler()])
    monkeypatch.setattr(logger, "propagate", False)
    logger.warning("%r", Unprintable())


def test_step_logger_counts_classes_of_exceptions_separately(logger, caplog):
    for kind in (OSError, ValueError):
        for _ in range(9):
            logger.error("failed", exc_info=kind())
    assert len(caplog.records) == 10


def test_step_logger_logs_all_debug_messages(logger, caplog):
    caplog.set_level("DEBUG", logger="guerdon.test")
    for _ in range(9):
        logger.debug("closed")
    assert len(caplog.records) == 9


def test_step_logger_bounds_what_it_remembers(logger):
    for number in range(3_000):
        logger.warning("%s failed", number)
    assert len(_logging._seen) <= _logging.MOST_KEYS
