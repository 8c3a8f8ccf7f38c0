"""`ServerLimits`: what it takes."""

import dataclasses
import math

import pytest

from guerdon.envs import ServerLimits
from guerdon.errors import InvalidArgumentError

NAMES = [field.name for field in dataclasses.fields(ServerLimits)]


def test_server_limits_allow_many_sessions_by_default():
    limits = ServerLimits()
    assert limits.max_sessions >= 512
    assert limits.max_connections > limits.max_sessions
    assert limits.max_message_bytes < 200 * 2**20


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5", None, 0.0, [1]], ids=str)
def test_server_limits_reject_what_is_not_a_positive_number(name, value):
    with pytest.raises(InvalidArgumentError, match=f"^`{name}` must be") as refused:
        ServerLimits(**{name: value})
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_server_limits_require_integers_for_counts(name):
    if name.startswith("max_"):
        with pytest.raises(InvalidArgumentError, match="must be an integer >= 1"):
            ServerLimits(**{name: 1.5})
    else:
        assert getattr(ServerLimits(**{name: 1.5}), name) == 1.5
    assert getattr(ServerLimits(**{name: 3}), name) == 3


def test_server_limits_are_frozen_and_reject_other_names():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServerLimits().max_sessions = 5
    with pytest.raises(TypeError):
        ServerLimits(sessions=5)
