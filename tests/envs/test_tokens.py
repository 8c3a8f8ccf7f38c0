"""check_token: what can be sent as a bearer token."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import EnvClient, create_app
from guerdon.envs.tokens import check_token
from guerdon.errors import InvalidArgumentError
from tests.envs.worlds import World

sendable = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1)


@given(sendable)
def test_printable_ascii_is_given_back_as_it_is(token):
    assert check_token(token) == token


def test_none_is_no_token():
    assert check_token(None) is None


UNSENDABLE = [
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


@pytest.mark.parametrize("token", [*UNSENDABLE, 3, b"secret", ["secret"], True], ids=repr)
def test_what_can_not_be_sent_is_refused_without_being_told(token):
    with pytest.raises(InvalidArgumentError, match="printable ASCII without spaces") as caught:
        check_token(token)
    assert "secret" not in str(caught.value)


@given(sendable, st.characters(exclude_characters=string.printable), st.data())
def test_one_odd_character_anywhere_is_enough(token, odd, data):
    place = data.draw(st.integers(0, len(token)))
    with pytest.raises(InvalidArgumentError):
        check_token(token[:place] + odd + token[place:])


@pytest.mark.parametrize("use", [
    lambda token: create_app(World, token=token),
    lambda token: EnvClient("http://127.0.0.1:1", token=token),
], ids=["server", "client"])  # fmt: skip
def test_server_and_client_refuse_what_would_never_match(use):
    with pytest.raises(InvalidArgumentError, match="printable ASCII"):
        use("secret\n")
