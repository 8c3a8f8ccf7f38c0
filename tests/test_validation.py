"""Argument checks: check_seconds and check_token; errors of pydantic."""

import math
import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from guerdon import EnvClient, create_app
from guerdon._validation import check_seconds, check_token, field_errors, summarize
from guerdon.errors import InvalidArgumentError
from tests.envs.worlds import World


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False) | st.integers(1, 10**300))
def test_check_seconds_returns_a_finite_number_above_0_as_a_float(amount):
    checked = check_seconds("timeout_s", amount)
    assert type(checked) is float
    assert checked == float(amount)


@pytest.mark.parametrize(
    "amount",
    [0, 0.0, -0.0, -1, -1e-9, math.nan, math.inf, -math.inf, True, False, None, "5", b"5",
     Decimal(5), 1j, [5], 10**400, -(10**400)],
    ids=repr,
)  # fmt: skip
def test_check_seconds_rejects_other_values(amount):
    with pytest.raises(
        InvalidArgumentError, match=r"^`timeout_s` must be a number of seconds above 0, got "
    ):
        check_seconds("timeout_s", amount)


valid_tokens = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1)


@given(valid_tokens)
def test_check_token_returns_printable_ascii(token):
    assert check_token(token) == token


def test_check_token_accepts_none():
    assert check_token(None) is None


INVALID = [
    "",
    " ",
    "a b",
    "secret\n",
    "secret\r\n",
    "\tsecret",
    "sécret",
    "a\x00",
    "a\x7f",
    "ａ",
]


@pytest.mark.parametrize("token", [*INVALID, 3, b"secret", ["secret"], True], ids=repr)
def test_check_token_rejects_other_values_without_showing_them(token):
    with pytest.raises(InvalidArgumentError, match="printable ASCII without spaces") as caught:
        check_token(token)
    assert "secret" not in str(caught.value)


@given(valid_tokens, st.characters(exclude_characters=string.printable), st.data())
def test_check_token_rejects_an_invalid_character_anywhere(token, odd, data):
    place = data.draw(st.integers(0, len(token)))
    with pytest.raises(InvalidArgumentError):
        check_token(token[:place] + odd + token[place:])


@pytest.mark.parametrize("use", [
    lambda token: create_app(World, token=token),
    lambda token: EnvClient("http://127.0.0.1:1", token=token),
], ids=["server", "client"])  # fmt: skip
def test_create_app_and_env_client_reject_an_invalid_token(use):
    with pytest.raises(InvalidArgumentError, match="printable ASCII"):
        use("secret\n")


def errors_of(count):
    """What pydantic raises for a list with so many errors."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[int]).validate_python(["x"] * count)
    return caught.value


@pytest.mark.parametrize("count", [1, 3, 4, 100])
def test_field_errors_lists_up_to_100_errors(count):
    error = errors_of(count)
    listed = field_errors(error)
    assert [each["loc"] for each in listed] == [(place,) for place in range(count)]
    assert all(set(each) == {"type", "loc", "msg"} for each in listed)
    named = summarize(error).split("; ")
    assert [each[:3] for each in named[:3]] == ["0: ", "1: ", "2: "][:count]
    assert named[3:] == ([f"and {count - 3} more"] if count > 3 else [])


@pytest.mark.parametrize(("count", "shown"), [(101, "101"), (20_000, "20,000")])
def test_field_errors_counts_more_than_100_errors(count, shown):
    error = errors_of(count)
    text = f"{shown} errors; they are listed if there are at most 100"
    assert field_errors(error) == [{"type": "too_many_errors", "loc": [], "msg": text}]
    assert summarize(error) == text
