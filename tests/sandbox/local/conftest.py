# ruff: noqa: E501  (programs, a line each)
"""Programs that say when they are there, and functions for pools."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import guerdon
from guerdon import Limits
from guerdon.sandbox.evaluating.source import RewardSource, find_source
from guerdon.sandbox.local.functions import FunctionPool


@pytest.fixture(scope="session")
def said():
    """Runs a program that ends well, and gives what it printed."""

    def said(sandbox, program, **given):
        execution = sandbox.run(program, **given)
        assert execution.ending == "ok", execution
        return execution.stdout

    return said


@pytest.fixture
def meeting(tmp_path, until):
    """A file that a program at `process` writes its id into, and waits."""

    class Meeting:
        def __init__(self):
            self.folder = tmp_path / "meeting"
            self.folder.mkdir()

        def program(self, name="a", then="import threading; threading.Event().wait()"):
            path = self.folder / name
            return (
                f"import os\nwith open({str(path) + '.new'!r}, 'w') as file: "
                f"file.write(str(os.getpid()))\nos.rename({str(path) + '.new'!r}, {str(path)!r})\n{then}"
            )

        def pid(self, name="a"):
            path = self.folder / name
            until(path.exists)
            return int(path.read_text())

    return Meeting()


@pytest.fixture
def pool_of(level):
    """Opens pools of a function `f(messages)`, given as text; closes them at the end."""
    opened = []

    def pool_of(text, **given):
        source = RewardSource(textwrap.dedent(text), "f")
        reuse = given.get("reuse", False)
        found = find_source(source, None, allow_read=(), keep_loop=reuse)
        pool = FunctionPool(
            found.handover.model_dump_json().encode(),
            level=level,
            **{"workers": 1, "limits": Limits()} | given,
            read=found.read,
            path=found.path,
        )
        opened.append(pool)
        return pool

    yield pool_of
    for pool in opened:
        pool.close()


@pytest.fixture
def host(tmp_path):
    """Starts a Python program that uses guerdon, as a host of its own."""
    started = []
    packages = [each for each in sys.path if each.endswith("site-packages")]
    source = str(Path(guerdon.__file__).parents[1])

    def host(text, *arguments, **given):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(text), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([source, *packages]),
                "TMPDIR": str(given.get("temporary", tmp_path)),
            },
        )
        started.append(process)
        return process

    yield host
    for process in started:
        process.kill()
        process.communicate()
