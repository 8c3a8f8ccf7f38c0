"""A sandbox that a package offers: it runs programs, and so reward functions."""

import pytest

from guerdon.errors import InvalidArgumentError, LoadError, SandboxError
from guerdon.rubrics.sandboxed.engines import PluginPool
from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox
from guerdon.rubrics.sandboxed.source import RewardSource
from guerdon.sandbox import opening
from guerdon.sandbox.local_sandbox import LocalSandbox
from guerdon.sandbox.opening import open_sandbox
from guerdon.sandbox.protocol import Execution, Limits

CHAT = [{"role": "assistant", "content": "42"}]
SOURCE = RewardSource(
    "print('imported')\n"
    "def r(messages, how=''):\n"
    "    print('before', end='')\n"
    "    if how == 'exit': import os; os._exit(0)\n"
    "    if how == 'flood': print('x' * 100_000)\n"
    "    return float(messages[-1].text)\n",
    "r",
)


@pytest.fixture
def offered(monkeypatch):
    """A plug-in by the name of `plugged`, which is made of the level `process`."""

    def make(*, workers, limits, packages, allow_read):
        sandbox = open_sandbox("process", workers=workers, limits=limits)
        sandbox.level, sandbox.promise = "plugged", "what a plug-in promises"
        return sandbox

    monkeypatch.setitem(opening.PLUG_INS._entries, "plugged", make)


def test_eval_sandbox_scores_in_a_plug_in(offered):
    with EvalSandbox(SOURCE, level="plugged") as sandbox:
        assert (sandbox.level, sandbox.promise) == ("plugged", "what a plug-in promises")
        result = sandbox.evaluate(CHAT)
        assert (result.score, result.log) == (42.0, "imported\nbefore")
        ended = sandbox.evaluate(CHAT, how="exit")
        assert (
            ended.error
            == "exited: it ended its process (exit code 0) before it had returned a result"
        )
        flood = sandbox.evaluate(CHAT, how="flood")
        assert flood.error == "output_limit: it printed more than 65,536 bytes"


@pytest.mark.anyio
async def test_evaluate_async_scores_in_a_plug_in(offered):
    async with EvalSandbox(SOURCE, level="plugged") as sandbox:
        assert (await sandbox.evaluate_async(CHAT)).score == 42.0


def test_eval_sandbox_in_a_plug_in_raises_for_what_cannot_be_loaded(offered):
    with pytest.raises(LoadError, match="has no 'q'; known"):
        EvalSandbox(RewardSource(SOURCE.text, "q"), level="plugged")


def test_eval_sandbox_checks_requirements_in_a_plug_in(offered):
    source = RewardSource(SOURCE.text, "r", ("no-such-thing",))
    with pytest.raises(LoadError, match="pip install no-such-thing"):
        EvalSandbox(source, level="plugged")


def test_eval_sandbox_refuses_reuse_in_a_plug_in(offered):
    with pytest.raises(
        InvalidArgumentError, match="`reuse` requires one of the levels auto, strict, process"
    ):
        EvalSandbox(SOURCE, level="plugged", reuse=True)


class Broken:
    """A sandbox that gives what it was made with."""

    level, promise = "broken", "nothing"

    def __init__(self, given):
        self.given = given
        self.closed = False

    def run(self, program, *, stdin=b"", files=None, limits=None):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def close(self):
        self.closed = True


def test_plugin_pool_closes_a_sandbox_without_guerdon():
    printed = "Traceback\nModuleNotFoundError: No module named 'guerdon'\n"
    sandbox = Broken(Execution("nonzero", exit_code=1, stderr=printed))
    with pytest.raises(
        SandboxError, match=r"is guerdon installed in that sandbox\? ModuleNotFound"
    ):
        PluginPool(sandbox, b"", limits=Limits())
    assert sandbox.closed


def test_eval_sandbox_reports_a_plug_in_that_fails_in_the_result(offered, monkeypatch):
    with EvalSandbox(SOURCE, level="plugged") as sandbox:
        broken = Broken(SandboxError("no luck"))
        monkeypatch.setattr(LocalSandbox, "run", lambda self, program, **given: broken.run(program))
        assert sandbox.evaluate(CHAT).error == "sandbox_error: the sandbox failed: no luck"


def test_plugin_pool_returns_no_answer_that_is_garbled(monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda count: "marker")
    pool = PluginPool(Broken(Execution("ok", 0, stdout="a\nmarker%%")), b"", limits=Limits())
    answer = pool.call(b"")
    assert (answer.content, answer.execution.stdout) == (b"", "a")
