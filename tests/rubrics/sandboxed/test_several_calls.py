"""Concurrent calls, and calls that are cancelled."""

import contextlib
import signal
import threading

import anyio
import pytest

from guerdon.errors import SandboxError
from guerdon.rubrics.sandboxed.eval_sandbox import BatchInterrupted, EvalSandbox
from guerdon.sandbox.protocol import Limits

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
OTHER = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "41"}]

LEVELS = ["none", "process", "strict"]
LOCKED = LEVELS[1:]


# Several at once, and the end


def test_evaluate_is_thread_safe(open_reward):
    sandbox = open_reward("answered", workers=2)
    scores = []
    threads = [
        threading.Thread(target=lambda: scores.append(sandbox.evaluate(CHAT, "42").score))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == [1.0] * 8


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize("reuse", [False, True], ids=["fork", "reuse"])
def test_close_ends_waiting_calls(descendants, rewards, level, reuse):
    before = descendants()
    sandbox = EvalSandbox(f"{rewards}:odd", level=level, limits=Limits(seconds=60), reuse=reuse)
    started, results = threading.Event(), []

    def call():
        started.set()
        with contextlib.suppress(SandboxError):
            results.append(sandbox.evaluate(CHAT, how="loop"))

    thread = threading.Thread(target=call)
    thread.start()
    started.wait()
    sandbox.close()
    thread.join(5)
    assert not thread.is_alive()
    assert all(not result.is_score_valid for result in results)
    assert descendants() <= before


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_batch_keeps_results_on_ctrl_c(descendants, write, level, workers):
    path = write("""
        def r(messages):
            while messages[-1].text != "42":
                pass
            return 1.0
    """)
    before = descendants()
    sandbox = EvalSandbox(f"{path}:r", level=level, workers=workers, limits=Limits(seconds=60))
    done, run = [], sandbox._engine.run
    sandbox._engine.run = lambda *call: done.append(run(*call)) or done[-1]

    def interrupt(number, frame):
        if done:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(BatchInterrupted) as caught:
            sandbox.evaluate_batch([CHAT, OTHER, OTHER, OTHER])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    first, *rest = caught.value.results
    assert (first.score, rest) == (1.0, [None] * 3)
    assert descendants() <= before
    with pytest.raises(SandboxError, match="is closed"):
        sandbox.evaluate(CHAT)


@pytest.mark.anyio
@pytest.mark.parametrize("level", LOCKED)
async def test_evaluate_async_ends_a_cancelled_call(open_reward, level):
    sandbox = open_reward("odd", level=level, limits=Limits(seconds=30))
    with anyio.move_on_after(0.2):
        await sandbox.evaluate_batch_async([CHAT, CHAT], how="loop")
    with anyio.fail_after(5):
        assert (await sandbox.evaluate_async(CHAT, how="well")).score == 1.0
