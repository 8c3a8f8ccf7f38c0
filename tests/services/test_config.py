"""The configuration of services, as in a reward's file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from guerdon.config import RewardConfig
from guerdon.errors import InvalidArgumentError, RewardConfigError, ServiceError
from guerdon.services import ChatModel, MCPClient
from guerdon.services.config import (
    McpService,
    OpenAIService,
    SdkService,
    ServiceConfig,
    fits_header,
    parse_service,
    read_secret,
    share_limits,
)
from guerdon.services.mcp_service import ToolService


def refusal(config, place=("mcp_services", "judge")):
    with pytest.raises(RewardConfigError) as caught:
        parse_service(place, config)
    return caught.value.problems


def mcp(**more):
    return {"type": "mcp", "endpoint": "http://localhost:8000/mcp", **more}


def llm(**more):
    return {"type": "openai_llm", "endpoint": "http://localhost:8000", "model": "m", **more}


def test_parse_service_reads_an_openai_llm():
    service = parse_service((), llm(model="my-model"))
    assert isinstance(service, OpenAIService)
    assert (service.model, service.retries, service.returns) == ("my-model", 3, "text")


def test_parse_service_returns_a_validated_service_unchanged():
    service = McpService(endpoint="https://example.org/mcp")
    assert parse_service((), service) is service


def test_mcp_service_survives_a_dictionary():
    service = parse_service((), mcp(tool="judge", token_env="TOKEN", timeout_s=5))
    assert parse_service((), service.model_dump(mode="json")) == service


def test_mcp_service_is_immutable():
    with pytest.raises(ValueError, match="frozen"):
        McpService(endpoint="http://localhost/mcp").timeout_s = 1.0


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"endpoint": "http://x"}, "judge.type: is required"),
        (mcp(type="rest"), "judge.type: unknown type \"rest\"; known: 'mcp', 'openai_llm'"),
        ({"type": "mcp"}, "judge: set either endpoint (an address) or command"),
        (mcp(command=["judge"]), "judge: set either endpoint (an address) or command"),
        ({"type": "mcp", "command": ["a", ""]}, "judge: a word of the command is empty"),
        ({"type": "mcp", "command": ["a\0"]}, "judge: a word of the command contains a NUL"),
        ({"type": "mcp", "command": ["a"], "token_env": "T"}, "judge: token_env and headers_env"),
        (mcp(env=["HOME"]), "judge: env requires a command"),
        (mcp(endpoint="ftp://x"), "judge.endpoint: invalid address; expected one like http"),
        (mcp(endpoint="localhost:8000"), "judge.endpoint: invalid address; expected one like http"),
        (llm(endpoint="nope"), "judge.endpoint: invalid address; expected one like http"),
        (llm(extra_body={"n": 2}), "judge.extra_body: must not contain n"),
        (mcp(endpoint="http:///mcp"), "judge.endpoint: invalid address; expected one like http"),
        (mcp(endpoint="http://a b/"), "judge.endpoint: invalid address; expected one like http"),
        (mcp(endpoint="http://x:99999/"), "judge.endpoint: invalid address: Port out of range"),
        (mcp(endpoint="http://[x/"), "judge.endpoint: invalid address"),
        (mcp(endpoint="http://u:secret@x/"), "judge.endpoint: an address must not contain a user"),
        (mcp(tool=""), "judge.tool: "),
        (mcp(timeout_s=0), "judge.timeout_s: "),
        (mcp(timeout_s=float("nan")), "judge.timeout_s: "),
        (mcp(timeout_s=True), "judge.timeout_s: "),
        (mcp(concurrency=0), "judge.concurrency: "),
        (mcp(concurrency="8"), "judge.concurrency: "),
        (mcp(connections=0), "judge.connections: "),
        (mcp(retries=-1), "judge.retries: "),
        (mcp(token_env="s3cret/+="), "judge.token_env: "),
        (mcp(token_env="TOKEN\n"), "judge.token_env: "),
        (mcp(modell="x"), "judge.modell: unknown key"),
        (llm(model=""), "judge.model: "),
        (llm(prompt=""), "judge.prompt: "),
        (llm(temperature=2.1), "judge.temperature: "),
        (llm(max_tokens=0), "judge.max_tokens: "),
        (llm(returns="number"), "judge.returns: "),
        (llm(private="yes"), "judge.private: "),
        (llm(api_key="sk-1"), "judge.api_key: unknown key"),
        ("http://localhost:8000", "judge: "),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
def test_parse_service_rejects_an_invalid_configuration(config, problem):
    (found,) = refusal(config)
    assert found.startswith(f"mcp_services.{problem}")


def test_parse_service_reports_every_problem():
    assert len(refusal(llm(model="", timeout_s=0, foo=1))) == 3


def test_parse_service_does_not_repeat_a_secret_in_an_address():
    assert "s3cret" not in str(refusal(mcp(endpoint="http://user:s3cret@localhost/mcp")))


MISPLACED = {
    "headers_env": mcp(headers_env="s3cret"),
    "header": mcp(headers_env={"X-Key": 53}),
    "env": {"type": "mcp", "command": ["judge"], "env": "s3cret"},
    "token_env": mcp(token_env=53),
    "command": {"type": "mcp", "command": "judge --key s3cret"},
    "api_key_env": llm(api_key_env=53),
    "extra_body": llm(extra_body="s3cret"),
}


@pytest.mark.parametrize("config", MISPLACED.values(), ids=MISPLACED)
def test_mcp_client_and_reward_config_do_not_repeat_a_value_that_may_be_secret(config):
    with pytest.raises(RewardConfigError, match=r"mcp_services\.judge.*: must be a ") as client:
        MCPClient({"judge": config})
    with pytest.raises(RewardConfigError, match=r"mcp_services\.judge.*: must be a ") as file:
        RewardConfig(mcp_services={"judge": config})
    for error in (client.value, file.value):
        assert not re.search("s3cret|53", str(error))


@pytest.mark.parametrize("given", [{"extra_body": "s3cret"}, {"api_key_env": 53}], ids=str)
def test_chat_model_does_not_repeat_a_value_that_may_be_secret(given):
    with pytest.raises(InvalidArgumentError) as raised:
        ChatModel("http://127.0.0.1:1", "m", **given)
    assert re.match("extra_body: must be a mapping|api_key_env: must be a str", str(raised.value))
    assert not re.search("s3cret|53", str(raised.value))


def test_parse_service_without_a_path_reports_the_key():
    assert refusal(mcp(timeout_s=0), place=())[0].startswith("timeout_s: ")


@pytest.mark.parametrize(("kind", "more"), [(OpenAIService, {}), (McpService, {"command": ["a"]})])
def test_service_does_not_repeat_its_address_if_it_is_invalid(kind, more):
    with pytest.raises(ValidationError) as caught:
        kind(endpoint="http://localhost/v1?key=s3cret", **more)
    assert "s3cret" not in str(caught.value)


def test_mcp_service_public_contains_no_secret():
    service = McpService(
        endpoint="https://example.org/mcp?key=s3cret#x", tool="judge", token_env="TOKEN"
    )
    assert "key=" not in repr(service)
    assert service.public() == {
        "type": "mcp",
        "endpoint": "https://example.org/mcp",
        "tool": "judge",
        "timeout_s": 60.0,
        "concurrency": 64,
    }
    public = McpService(command=("judge", "--key", "s3cret"), env=("KEY",)).public()
    assert public["command"] == "judge"
    assert "s3cret" not in str(public)
    assert "KEY" not in str(public)


def test_openai_service_public_excludes_a_private_prompt():
    public = parse_service((), llm(prompt="Rate {code}", api_key_env="KEY")).public()
    assert public["prompt"] == "Rate {code}"
    assert "KEY" not in str(public)
    assert "prompt" not in parse_service((), llm(prompt="42?", private=True)).public()


def test_sdk_service_public_is_its_name():
    class Server:
        name = "arithmetic"

    assert SdkService(server=Server()).public()["server"] == "arithmetic"


def test_service_config_has_a_json_schema():
    schema = TypeAdapter(ServiceConfig).json_schema()
    assert schema["discriminator"]["propertyName"] == "type"
    assert {"McpService", "OpenAIService"} <= schema["$defs"].keys()


SERVICES = {
    "model": {"type": "openai_llm", "model": "m", "api_key_env": "JUDGE_KEY"},
    "token": {"type": "mcp", "token_env": "JUDGE_KEY"},
    "header": {"type": "mcp", "headers_env": {"X-Key": "JUDGE_KEY"}},
}
UNFIT = {"newline": "s3cret\n", "space": " s3cret", "beyond_ascii": "s3crét", "within": "s3c\rret"}


@pytest.mark.parametrize("value", UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("named", SERVICES.values(), ids=SERVICES)
def test_mcp_client_rejects_a_secret_that_no_header_can_carry(named, value, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", value)
    refusal = "variable JUDGE_KEY: it must be printable"
    with MCPClient({"judge": {"endpoint": "http://127.0.0.1:1", **named}}) as client:
        asked = {"prompt": "hello"} if "model" in named else {}
        with pytest.raises(ServiceError, match=refusal) as raised:
            client.call_tool("judge", **asked)
        with pytest.raises(ServiceError, match=refusal):
            client.check()
    assert "s3c" not in repr(raised.value)


def test_chat_model_rejects_a_key_that_no_header_can_carry():
    with pytest.raises(InvalidArgumentError, match="`api_key` must be printable ASCII") as raised:
        ChatModel("http://127.0.0.1:1", "m", api_key="s3cret\n")
    assert "s3cret" not in str(raised.value)


def test_read_secret_returns_any_value_for_a_program(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "-----BEGIN\nEND\n")
    assert read_secret("JUDGE_KEY", "the program", in_header=False) == "-----BEGIN\nEND\n"


def test_read_secret_rejects_an_unset_variable(monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(ServiceError, match=r"the judge needs .* JUDGE_KEY, which isn't set"):
        read_secret("JUDGE_KEY", "the judge")


@given(st.text())
def test_fits_header_accepts_only_what_comes_back_from_one(value):
    if fits_header(value):
        assert value.encode("ascii").strip().decode() == value
        assert not set(value) & set("\r\n\0")


@pytest.fixture
def shared():
    """Share the limits of services among processes until the test ends."""
    yield share_limits
    share_limits(1)


@pytest.mark.parametrize(("processes", "own"), [(1, 10), (3, 3), (10, 1)])
def test_share_limits_divides_the_concurrency_among_processes(shared, processes, own):
    shared(processes)
    assert McpService(endpoint="http://localhost:8000", concurrency=10).own_concurrency == own


def test_share_limits_divides_the_turns_of_services_that_are_opened_later(shared):
    shared(4)
    assert ToolService("judge", McpService(endpoint="http://h", concurrency=8))._turns._value == 2


@pytest.mark.parametrize(
    "opened",
    [
        lambda: MCPClient({"judge": {"type": "mcp", "endpoint": "http://h", "concurrency": 2}}),
        lambda: ChatModel("http://h", "m", concurrency=2),
    ],
    ids=["tool", "model"],
)
def test_a_service_with_fewer_calls_at_once_than_processes_is_rejected(shared, opened):
    shared(3)
    with pytest.raises(InvalidArgumentError, match="use at most 2 workers"):
        opened()
