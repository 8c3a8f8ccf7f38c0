"""The OpenAPI document, and what schemathesis finds with it."""

import re

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import Field

from guerdon import Action, Environment, Observation, State
from tests.envs.server.worlds import Length


class Program(Action):
    """A submission, as of the coding environment."""

    program: str = Field(max_length=1000)
    language: str | None = None
    files: dict[str, list[str]] = Field(default_factory=dict)


class Verdict(Observation):
    prompt: str
    passed: int = Field(default=0, ge=0)
    parts: list["Part"] = Field(default_factory=list)


class Part(State):
    share: float = Field(default=0.0, ge=0, le=1)


Verdict.model_rebuild()


class Coding(Environment[Program, Verdict, Part]):
    """Write a program."""

    def __init__(self):
        super().__init__(rubric=Length())

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Verdict(prompt="go", parts=[Part(episode_id=episode_id)])

    def step(self, action, timeout_s=None, **kwargs):
        passed = len(action.program)
        return Verdict(prompt="on", passed=passed).with_reward(passed / 1000)

    @property
    def state(self):
        return Part()


@pytest.fixture
def document(serve):
    return serve(Coding, env_name="coding").http.get("/openapi.json").json()


def test_openapi_lists_all_paths(document):
    assert document["openapi"].startswith("3.")
    assert re.fullmatch(r"\d+\.\d+\.\d+", document["info"]["version"])
    assert document["info"]["title"] == "coding"
    assert set(document["paths"]) == {
        "/health",
        "/metadata",
        "/schema",
        "/list_environments",
        "/config",
        "/config/audit",
        "/metrics",
        "/state",
        "/reset",
        "/step",
        "/mcp",
    }


def test_openapi_of_production_mode_has_no_calls_of_a_fresh_environment(serve):
    paths = serve(Coding, mode="production").http.get("/openapi.json").json()["paths"]
    assert not {"/state", "/reset", "/step"} & set(paths)
    assert {"/mcp", "/schema"} <= set(paths)


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_openapi_references_resolve(document):
    found = set(references(document))
    assert len(found) > 5
    for reference in found:
        place = document
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_openapi_schemas_accept_the_protocols_examples(document, serve):
    def valid(name, value):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)

    http = serve(Coding).http
    body = {"action": {"program": "x"}, "timeout_s": 5.0, "request_id": "r", "more": 1}
    valid("StepRequest", body)
    valid("Result", http.post("/step", json=body).json())
    valid("ResetRequest", {"seed": 42, "episode_id": "e", "level": 3})
    valid("Result", http.post("/reset").json())
    valid("State", http.get("/state").json())
    valid("EnvironmentMetadata", http.get("/metadata").json())
    with pytest.raises(jsonschema.ValidationError):
        valid("StepRequest", {"action": {}})
    with pytest.raises(jsonschema.ValidationError):
        valid("ResetRequest", {"seed": -1})


def test_openapi_separates_schemas_of_the_same_name(serve):
    class Outer(Program):
        part: "Other"

    class Other(Action):
        x: int

    Other.__name__ = Other.__qualname__ = "Part"
    Outer.model_rebuild(_types_namespace={"Other": Other})
    schemas = (
        serve(Coding, Outer, Verdict).http.get("/openapi.json").json()["components"]["schemas"]
    )
    parts = [each for name, each in schemas.items() if name.endswith(("Part", "Other"))]
    assert sorted("x" in each["properties"] for each in parts) == [False, True]


def operations(url):
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    return [operation.ok() for operation in schema.get_all_operations()]


@pytest.mark.edge  # hundreds of requests to a real server
def test_openapi_documents_all_answers_that_schemathesis_finds(serve):
    served = serve(Coding)
    found = operations(served.url)
    assert len(found) == 12
    for operation in found:
        examples = 25 if operation.method == "post" else 2
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            play(operation, mode, examples)


def play(operation, mode, examples):
    negative = mode is schemathesis.GenerationMode.NEGATIVE
    if negative and operation.method == "get":
        return  # there is no bad request where nothing is asked
    cases = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=examples,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def played(case):
        answer = case.call()
        body = case.body if isinstance(case.body, dict) else {}
        if not (answer.status_code == 504 and body.get("timeout_s", 60) < 1):  # as was asked
            assert answer.status_code < 500, (case.body, answer.text)
        documented = operation.definition.raw["responses"]
        assert str(answer.status_code) in documented, (case.body, answer.text)

    played()
