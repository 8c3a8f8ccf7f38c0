"""The real command, in a process of its own."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).parent / "guerdon")
SLOW = 60  # seconds after which a process that hangs is given up

REWARDS = """
    import os

    from guerdon import ExactMatch, Gate, Rubric, Sequential, WeightedSum

    class Number(Rubric):
        '''The turn is a number.

        More that isn't in a table.
        '''
        score_range = (0.0, 1.0)

        def forward(self, action, observation):
            return float(action.content)

    def polite(action, observation):
        '''Says please.'''
        return float("please" in action.content)

    def reward():
        return WeightedSum([Gate(Number(), 0.5), Sequential(polite, Number())], [1.0, -0.5])

    def stops(action, observation):
        '''Signals that it is at a row, and waits there, if a test listens.'''
        if action.content == "stop" and "LISTENS" in os.environ:
            ready, go = os.environ["LISTENS"].split(":")
            with open(ready, "wb") as pipe:
                pipe.write(b"x")
            with open(go, "rb") as pipe:
                pipe.read(1)
        return 0.5
"""


@pytest.fixture
def environ():
    """What the command finds in its environment: nothing that changes how it prints."""
    plain = {"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1", "PYTHONWARNINGS": "default"}
    unwanted = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LISTENS")
    return {k: v for k, v in os.environ.items() if k not in unwanted} | plain


@pytest.fixture
def guerdon(tmp_path, environ):
    """Runs the command; the files are in its working directory."""

    def guerdon(*args, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        done = subprocess.run(
            [COMMAND, *args], cwd=tmp_path, env=environ, timeout=SLOW, check=False, **options
        )
        for name in ("stdout", "stderr"):
            found = getattr(done, name)
            setattr(done, name, found.decode() if found is not None else None)
        return done

    return guerdon


@pytest.fixture
def started(tmp_path, environ):
    """Starts the command, and sees to it that it ends."""
    processes = []

    def started(*args, listens=None, **options):
        env = environ | ({"LISTENS": listens} if listens else {})
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen([COMMAND, *args], cwd=tmp_path, env=env, **options)
        processes.append(process)
        return process

    yield started
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def rewards(tmp_path):
    """A file with rewards."""
    (tmp_path / "reward.py").write_text(textwrap.dedent(REWARDS))


@pytest.fixture
def rows(tmp_path):
    """Writes rollouts of one turn each to ``rollouts.jsonl``; gives the bytes."""

    def rows(turns, **columns):
        data = b"".join(
            json.dumps(
                {"id": i, "messages": [{"role": "assistant", "content": turn}], **columns}
            ).encode()
            + b"\n"
            for i, turn in enumerate(turns)
        )
        (tmp_path / "rollouts.jsonl").write_bytes(data)
        return data

    return rows
