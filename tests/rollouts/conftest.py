"""Files of rollouts and rewards, which are unloaded after each test."""

import json
import sys
import textwrap

import pytest


@pytest.fixture(autouse=True)
def forgetful():
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name.startswith("guerdon_reward_"):
            del sys.modules[name]


@pytest.fixture
def row():
    """Makes a row: each text is an assistant turn."""

    def row(*turns, **columns):
        return {"messages": [{"role": "assistant", "content": turn} for turn in turns], **columns}

    return row


@pytest.fixture
def write_rows(tmp_path):
    """Writes rows, or encoded lines, to a file, and returns its path as text."""

    def write_rows(rows, name="rollouts.jsonl"):
        path = tmp_path / name
        lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in rows]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return str(path)

    return write_rows


@pytest.fixture
def reward(tmp_path):
    """Writes a file with a reward, and gives its spec."""

    def reward(text, name="reward"):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        return f"{path}:reward"

    return reward
