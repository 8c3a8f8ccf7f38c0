"""Secrets in environment variables: read when needed, refused where no header can carry them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError, ServiceError
from guerdon.services.client import MCPClient
from guerdon.services.models.chat import ChatModel
from guerdon.services.models.secret import fits_a_header, secret_of

SERVICES = {
    "model": {"type": "openai_llm", "model": "m", "api_key_env": "JUDGE_KEY"},
    "token": {"type": "mcp", "token_env": "JUDGE_KEY"},
    "header": {"type": "mcp", "headers_env": {"X-Key": "JUDGE_KEY"}},
}
UNFIT = {"newline": "s3cret\n", "space": " s3cret", "beyond_ascii": "s3crét", "within": "s3c\rret"}


@pytest.mark.parametrize("value", UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("named", SERVICES.values(), ids=SERVICES)
def test_a_secret_that_no_header_carries_is_refused_and_not_told(named, value, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", value)
    refusal = "variable JUDGE_KEY holds; it takes printable"
    with MCPClient({"judge": {"endpoint": "http://127.0.0.1:1", **named}}) as client:
        asked = {"prompt": "hello"} if "model" in named else {}
        with pytest.raises(ServiceError, match=refusal) as raised:
            client.call_tool("judge", **asked)
        with pytest.raises(ServiceError, match=refusal):
            client.check()
    assert "s3c" not in repr(raised.value)


def test_a_key_that_no_header_carries_is_refused_at_once():
    with pytest.raises(InvalidArgumentError, match="api_key takes printable ASCII") as raised:
        ChatModel("http://127.0.0.1:1", "m", api_key="s3cret\n")
    assert "s3cret" not in str(raised.value)


def test_a_program_may_be_given_any_secret(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "-----BEGIN\nEND\n")
    assert secret_of("JUDGE_KEY", "the program", in_header=False) == "-----BEGIN\nEND\n"


def test_one_that_is_not_set_is_told(monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(ServiceError, match=r"the judge needs .* JUDGE_KEY, which isn't set"):
        secret_of("JUDGE_KEY", "the judge")


@given(st.text())
def test_what_fits_a_header_is_ascii_and_comes_back_from_one(value):
    if fits_a_header(value):
        assert value.encode("ascii").strip().decode() == value
        assert not set(value) & set("\r\n\0")
