import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Limits
from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.task import limits_message

TIMES = ("seconds", "cpu_seconds")
AMOUNTS = ("memory_bytes", "processes", "output_bytes", "file_bytes")


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize(
    "value", [0, -1, 0.0, -0.5, math.nan, math.inf, -math.inf, True, "5", b"5", [5], 1j]
)
def test_limits_refuse_an_invalid_time(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^`{name}` must be in .*0, 1e\+06\], got"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, math.nan, math.inf, True, "5", None])
def test_limits_refuse_an_invalid_amount(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^`{name}` must be an integer in \[1, "):
        Limits(**{name: value})


def test_limits_refuse_seconds_of_none():
    with pytest.raises(InvalidArgumentError, match=r"`seconds` must be .* got None"):
        Limits(seconds=None)


@pytest.mark.parametrize("value", [-1, 0.0, False, "0", None])
def test_limits_refuse_an_invalid_number_of_files(value):
    with pytest.raises(InvalidArgumentError, match=r"^`files` must be an integer in \[0, "):
        Limits(files=value)


def test_limits_accept_zero_files():
    assert Limits(files=0).files == 0


@pytest.mark.parametrize("name", [*TIMES, *AMOUNTS, "files"])
@pytest.mark.parametrize("value", [10**400, 2**63])
def test_limits_refuse_huge_numbers(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^`{name}` must be .*in "):
        Limits(**{name: value})


def test_limits_shorten_a_long_value_in_errors():
    with pytest.raises(InvalidArgumentError) as caught:
        Limits(seconds="x" * 10_000)
    assert len(str(caught.value)) < 200


def test_limits_report_the_first_invalid_one():
    with pytest.raises(InvalidArgumentError, match=r"^`seconds` must be .*, got 0"):
        Limits(seconds=0, files=-1)


times = st.floats(min_value=1e-6, max_value=1e6) | st.integers(1, 10**6)
amounts = st.integers(1, 1 << 40)


@given(
    seconds=times,
    cpu_seconds=st.none() | times,
    memory_bytes=amounts,
    processes=amounts,
    output_bytes=amounts,
    file_bytes=amounts,
    files=st.integers(0, 1 << 40),
)
def test_limits_message_includes_all_limits(**given):
    terms = limits_message(Limits(**given))
    assert terms["seconds"] == given["seconds"]
    assert terms["memory"] == given["memory_bytes"]
    for name in ("processes", "file_bytes", "files"):
        assert terms[name] == given[name]
    if given["cpu_seconds"] is None:
        assert terms["cpu"] >= given["seconds"]
    else:
        assert terms["cpu"] == given["cpu_seconds"]


@pytest.mark.parametrize(("processes", "factor"), [(1, 1), (2, 2), (4, 4), (64, 4)])
def test_limits_message_derives_processor_time(monkeypatch, processes, factor):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert limits_message(Limits(seconds=3, processes=processes))["cpu"] == 3 * factor


def test_limits_are_frozen():
    with pytest.raises(AttributeError):
        Limits().seconds = 3
