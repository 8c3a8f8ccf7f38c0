"""Files with rewards, and an interpreter that forgets them after each test."""

import sys
import textwrap

import pytest


@pytest.fixture(autouse=True)
def forgetful():
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name.startswith(("guerdon_reward_", "beside_", "mine_")):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    """Writes a file, and gives its path as text."""

    def write(text, name="reward.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write
