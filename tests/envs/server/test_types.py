"""The types that are passed to `create_app`, for an environment that declares none or others."""

import pytest
from starlette.testclient import TestClient

from guerdon import Action, Environment, Observation, State, create_app
from guerdon.errors import EnvDefinitionError
from tests.envs.worlds import Half


class Say(Action):
    text: str = ""


class Shout(Say):
    loud: bool = True


class Heard(Observation):
    echo: str = ""


class Base(Environment):
    state = State()

    def __init__(self):
        super().__init__(rubric=Half())

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Heard()


class Untyped(Base):
    def step(self, action, timeout_s=None, **kwargs):
        return self.score(action, Heard(echo=action.text, done=True))


class UntypedAsync(Base):
    async def step_async(self, action):
        return await self.score_async(action, Heard(echo=action.text, done=True))


class Typed(Base):
    def step(self, action: Say) -> Heard:
        return self.score(action, Heard(echo=action.text, done=True))


class Wide(Base):
    def step(self, action: Action) -> Observation:
        return self.score(action, Heard(echo=action.text, done=True))


def make():
    return Untyped()


@pytest.mark.parametrize(
    ("factory", "types"),
    [
        (Untyped, (Say, Heard)),
        (UntypedAsync, (Say, Heard)),
        (make, (Say, Heard)),
        (Typed, (Say, Heard)),
        (Typed, (Say, Observation)),
        (Typed, (Shout, Heard)),
        (Wide, (Say, Heard)),
    ],
)
def test_create_app_types_that_are_passed_count(factory, types):
    with TestClient(create_app(factory, *types)) as client:
        answer = client.post("/step", json={"action": {"text": "hi"}}).json()
        assert (answer["reward"], answer["observation"]["echo"]) == (0.5, "hi")
        schema = client.get("/schema").json()
        assert schema["action"]["title"] == types[0].__name__
        assert schema["observation"]["title"] == "Heard"
        assert client.post("/step", json={"action": {"txt": "hi"}}).status_code == 422


@pytest.mark.edge
def test_create_app_types_that_are_passed_count_in_processes():
    with TestClient(create_app(Untyped, Say, Heard, processes=2)) as client:
        assert client.post("/step", json={"action": {"text": "hi"}}).json()["reward"] == 0.5


class Other(Action):
    move: int = 0


class Seen(Observation):
    pass


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ((Other, Heard), "`action_type` is Other, but Typed declares Say"),
        ((Action, Heard), "`action_type` is Action, but Typed declares Say"),
        ((Say, Seen), "`observation_type` is Seen, but Typed declares Heard"),
    ],
)
def test_create_app_refuses_types_that_contradict_the_class(types, problem):
    with pytest.raises(EnvDefinitionError, match=problem):
        create_app(Typed, *types)
    app = create_app(lambda: Typed(), *types)
    with pytest.raises(EnvDefinitionError, match=problem), TestClient(app):
        pass
