"""A pool on Ray without Ray; ``make cluster`` tests it with Ray."""

import sys

import pytest

from guerdon import EnvPool
from guerdon.errors import MissingExtraError


def test_env_pool_on_ray_requires_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"guerdon\[ray\]"):
        EnvPool(object, n=2, backend="ray")
