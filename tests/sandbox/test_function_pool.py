# ruff: noqa: E501  (programs, a line each)
"""Pools of a function: how importing it ends, how calls end, and what one call leaves the next."""

import json
import os
import signal
import socket
import threading

import pytest

from guerdon import EvalSandbox, Limits
from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.rubrics import RewardSource
from guerdon.rubrics.sandboxed.messages import write_call
from guerdon.sandbox import function_pool
from guerdon.sandbox.supervisor.processes import children

CHAT = [{"role": "assistant", "content": "42"}]
GOOD = "def f(messages): return 1.0"


@pytest.fixture
def opened(level):
    """Opens an `EvalSandbox` of a text, and closes it at the end."""
    sandboxes = []

    def opened(text, **given):
        sandboxes.append(EvalSandbox(RewardSource(text, "f"), level=level, **given))
        return sandboxes[-1]

    yield opened
    for sandbox in sandboxes:
        sandbox.close()


@pytest.mark.parametrize("reuse", [False, True], ids=["forked", "reused"])
def test_function_pool_call_returns_the_answer(opened, reuse):
    sandbox = opened("def f(messages, ground_truth): return float(ground_truth)", reuse=reuse)
    assert [sandbox.evaluate(CHAT, number).score for number in range(5)] == [
        0.0,
        1.0,
        2.0,
        3.0,
        4.0,
    ]


@pytest.mark.parametrize(
    ("text", "ending", "exit_code"),
    [("import os; os._exit(3)", "nonzero", 3), ("import os; os._exit(0)", "ok", 0),
     ("import ctypes; ctypes.string_at(0)", "signal", -11), ("import os; os.abort()", "signal", -6),
     ("while True: pass", "timeout", -9), ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory", None),
     ("while True: print('x' * 1000)", "output_limit", None)],
    ids=["leaves", "leaves with 0", "segfault", "aborts", "loops", "grows", "floods"],
)  # fmt: skip
def test_function_pool_raises_if_an_import_ends_its_process(
    monkeypatch, pool_of, text, ending, exit_code, below
):
    monkeypatch.setattr(function_pool, "OPENING_SECONDS", 2.0)
    monkeypatch.setattr(function_pool, "OPENING_MEMORY", 200 << 20)
    monkeypatch.setattr(function_pool, "OPENING_OUTPUT", 10_000)
    if ending != "timeout":
        monkeypatch.setattr(function_pool, "OPENING_SECONDS", 5.0)
    before = below()
    with pytest.raises(SandboxError) as caught:
        pool_of(f"print('so far', flush=True)\n{text}\n{GOOD}", limits=Limits(seconds=0.5))
    execution = caught.value.execution
    assert execution.ending == ending
    assert execution.stdout.startswith("so far\n")
    if exit_code is not None:
        assert execution.exit_code == exit_code
    assert below() <= before


def test_function_pool_refuses_an_import_that_leaves_a_process(pool_of, below):
    before = below()
    with pytest.raises(SandboxError) as caught:
        pool_of(f"import os, threading\nif not os.fork(): threading.Event().wait()\n{GOOD}")
    assert "running" in caught.value.execution.detail
    assert caught.value.execution.ending == "nonzero"
    assert below() <= before


def test_function_pool_refuses_an_import_that_writes_to_the_supervisor(pool_of):
    text = f"import os\nos.write(3, b'\\0\\1\\0\\0' + b'[' * 65536)\nos._exit(1)\n{GOOD}"
    with pytest.raises(SandboxError) as caught:
        pool_of(text)
    assert caught.value.execution is not None
    assert caught.value.execution.ending != "sandbox_error"


def test_function_pool_describes_a_function_that_cannot_be_loaded(pool_of):
    description = json.loads(pool_of("raise ValueError('no')").description)
    assert "ValueError: no" in description["refused"]


CALLS = [
    ("leaves", "import os; os._exit(3)", "nonzero", 3),
    ("leaves with 0", "import os; os._exit(0)", "ok", 0),
    ("segfault", "import ctypes; ctypes.string_at(0)", "signal", -11),
    ("aborts", "import os; os.abort()", "signal", -6),
    ("terminated", "import os; os.kill(os.getpid(), 15)", "signal", -15),
    ("loops", "while True: pass", "timeout", None),
    ("sleeps", "import time; time.sleep(60)", "timeout", None),
    ("floods", "while True: print('x' * 1000)", "output_limit", None),
]


@pytest.fixture(scope="module", params=[False, True], ids=["forked", "reused"])
def executing(request, level):
    """A reward that executes its ground truth, and then returns 1."""
    text = (
        "import os, sys, contextlib\ndef f(messages, ground_truth):\n"
        "    with contextlib.suppress(OSError): print('so far', flush=True)\n"
        "    exec(ground_truth)\n    return 1.0"
    )
    limits = Limits(seconds=0.3)
    with EvalSandbox(
        RewardSource(text, "f"), level=level, limits=limits, reuse=request.param
    ) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("text", "ending", "code"), [each[1:] for each in CALLS], ids=[each[0] for each in CALLS]
)
def test_function_pool_call_reports_an_ended_process_and_answers_the_next(
    executing, text, ending, code
):
    pool = executing._engine._pool  # which returns more than a result
    good, bad = (write_call([[]], code, {}) for code in ("", text))
    for _ in range(2):
        answer = pool.call(good)
        assert answer.content is not None, answer
        answer = pool.call(bad)
        assert answer.content is None
        assert answer.execution.ending == ending
        if code is not None:
            assert answer.execution.exit_code == code
        assert answer.execution.stdout.startswith("so far\n")
    assert executing.evaluate(CHAT, "").score == 1.0


def test_function_pool_call_is_limited_in_processor_time(opened):
    sandbox = opened(
        "def f(messages):\n    while True: pass", limits=Limits(seconds=30, cpu_seconds=0.2)
    )
    result = sandbox.evaluate(CHAT)
    assert result.score is None
    assert "processor time" in result.error


@pytest.mark.parametrize("reuse", [False, True], ids=["forked", "reused"])
def test_function_pool_call_is_limited_in_memory(opened, reuse):
    text = (
        "def f(messages, ground_truth):\n    if ground_truth:\n        x = []\n"
        "        while True: x.append(bytearray(1 << 20))\n    return 1.0"
    )
    sandbox = opened(text, limits=Limits(memory_bytes=64 << 20, seconds=20), reuse=reuse)
    result = sandbox.evaluate(CHAT, True)
    assert result.score is None
    assert "memory" in result.error.lower()
    assert sandbox.evaluate(CHAT, False).score == 1.0


@pytest.mark.parametrize(
    "text",
    ["os.close(3)", "os.write(3, b'{}'); os._exit(0)", "os.write(3, b'x' * 5000); os._exit(0)",
     "os.closerange(0, 100)", "os.write(1, b'x'); os.close(1)", "sys.stdout = None", "os.close(6)",
     "os.write(6, b'\\xff' * 8)", "os.write(6, bytes(8) + b'x'); os._exit(0)"],
)  # fmt: skip
def test_function_pool_survives_a_call_that_uses_foreign_descriptors(executing, text):
    assert executing.evaluate(CHAT, text).score in (None, 1.0)
    executing.evaluate(CHAT, "os._exit(0)")  # a reused one is replaced by this
    assert executing.evaluate(CHAT, "").score == 1.0


@pytest.mark.parametrize("reuse", [False, True], ids=["forked", "reused"])
def test_function_pool_call_refuses_a_long_answer(monkeypatch, opened, reuse):
    monkeypatch.setattr("guerdon.sandbox.worker.MAX_ANSWER", 100_000)
    text = (
        "from guerdon import EvaluateResult\ndef f(messages, ground_truth):\n"
        "    return EvaluateResult(score=1.0, reason='x' * ground_truth)"
    )
    sandbox = opened(text, reuse=reuse)
    assert sandbox.evaluate(CHAT, 1000).score == 1.0
    result = sandbox.evaluate(CHAT, 200_000)
    assert result.score is None
    assert "97.66 KiB" in result.error
    assert sandbox.evaluate(CHAT, 1000).score == 1.0


def test_function_pool_call_sends_many_megabytes(opened):
    sandbox = opened(
        "def f(messages): return float(len(messages[0].text))", limits=Limits(memory_bytes=1 << 30)
    )
    chat = [{"role": "user", "content": "x" * (8 << 20)}]
    assert sandbox.evaluate(chat).score == float(8 << 20)


COUNTS = "calls = []\ndef f(messages):\n    calls.append(1)\n    return float(len(calls))"


def test_function_pool_calls_are_independent(opened):
    sandbox = opened(COUNTS)
    assert [sandbox.evaluate(CHAT).score for _ in range(3)] == [1.0] * 3


def test_function_pool_with_reuse_keeps_state(opened):
    sandbox = opened(COUNTS, reuse=True)
    assert [sandbox.evaluate(CHAT).score for _ in range(3)] == [1.0, 2.0, 3.0]


DOES = """
import os, signal, time
calls = hoard = 0
def f(messages, ground_truth):
    global calls, hoard
    calls += 1
    print(ground_truth, end="")
    exec(ground_truth)
    return float(calls)
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [("os._exit(0)", "exited"), ("os._exit(3)", "exited"), ("os.abort()", "signal: SIGABRT"),
     ("while True: pass", "timeout: it was not done within 1 s"),
     ("x = b'1' * (1 << 29)", "MemoryError"), ("os.write(1, b'x' * 100_000)", "output_limit"),
     ("os.write(3, b'x' * 100)", "its answer has more than"),
     ("os.write(3, bytes(9))", "exited: it wrote to descriptors"), ("1 / 0", "ZeroDivisionError")],
    ids=["exits with 0", "exits", "aborts", "loops", "memory", "floods",
         "long answer", "meddles", "raises"],
)  # fmt: skip
def test_evaluate_together_fails_one_call_alone(opened, text, error):
    sandbox = opened(DOES, limits=Limits(seconds=1))
    texts = ["pass", "''", text, "[]", text, "{}"]
    results = sandbox.evaluate_together([(CHAT, each, {}) for each in texts])
    assert [result.score is None for result in results] == [each == text for each in texts]
    assert all(error in result.error for result in results[2::2][:2])
    assert [results[place].log for place in (0, 1, 3, 5)] == ["pass", "''", "[]", "{}"]
    assert results[1].score == 2.0


def test_evaluate_together_repeats_a_call_that_others_made_fail(opened):
    sandbox = opened(DOES, limits=Limits(memory_bytes=100 << 20))
    keeps = "global hoard; hoard = bytes(60 << 20) + b'1'"
    later = "import threading; threading.Timer(0.05, os._exit, [0]).start()"
    for texts in (["pass", keeps, "x = bytes(80 << 20) + b'1'; os._exit(0) if hoard else 0"],
                  ["pass", later, "time.sleep(0.5)"]):  # fmt: skip
        results = sandbox.evaluate_together([(CHAT, each, {}) for each in texts])
        assert [result.error for result in results][:2] == [None, None]
    assert [result.score for result in results] == [1.0, 2.0, 1.0]


def test_evaluate_together_starts_anew_each_time(opened):
    sandbox = opened(COUNTS)
    calls = [(CHAT, None, {})] * 3
    for _ in range(2):
        assert [each.score for each in sandbox.evaluate_together(calls)] == [1.0, 2.0, 3.0]
    assert sandbox.evaluate_together([]) == []


def test_evaluate_together_reports_invalid_arguments_in_their_result(opened):
    sandbox = opened("def f(messages, ground_truth): return 1.0")
    calls = [(CHAT, 1, {}), (CHAT, {3}, {}), (CHAT, 2, {})]
    first, second, third = sandbox.evaluate_together(calls)
    assert (first.score, third.score) == (1.0, 1.0)
    assert "InvalidArgumentError: ground_truth is {3} (set)" in second.error


def test_evaluate_together_sends_and_receives_much(opened):
    sandbox = opened(
        "from guerdon import EvaluateResult\ndef f(messages, ground_truth):\n"
        "    return EvaluateResult(score=1.0, reason=ground_truth)"
    )
    texts = ["x" * 2_000_000, "y", "z" * 3_000_000]
    results = sandbox.evaluate_together([(CHAT, text, {}) for text in texts])
    assert [result.reason for result in results] == texts


@pytest.mark.parametrize("reuse", [False, True], ids=["forked", "reused"])
def test_function_pool_call_captures_only_its_own_output(opened, reuse):
    sandbox = opened(
        "print('importing')\ndef f(messages, ground_truth):\n"
        "    if ground_truth: print(ground_truth, end='')\n    return 1.0",
        reuse=reuse,
    )
    assert [sandbox.evaluate(CHAT, text).log for text in ("a", "", "b")] == ["a", None, "b"]


def test_function_pool_call_ends_threads(opened):
    text = (
        "import threading\ndef f(messages):\n    found = threading.active_count()\n"
        "    threading.Thread(target=threading.Event().wait).start()\n    return float(found)"
    )
    sandbox = opened(text)
    assert [sandbox.evaluate(CHAT).score for _ in range(3)] == [1.0] * 3


@pytest.mark.parametrize("reuse", [False, True], ids=["forked", "reused"])
def test_function_pool_limits_threads(opened, level, reuse):
    if level == "process":
        pytest.skip("process measures them at intervals")
    text = (
        "import threading\ndef f(messages):\n    stop = threading.Event()\n    count = 1\n    try:\n"
        "        while count < 60:\n            threading.Thread(target=stop.wait).start()\n"
        "            count += 1\n    except RuntimeError: pass\n    stop.set()\n    return count"
    )
    assert opened(text, reuse=reuse, limits=Limits(processes=16)).evaluate(CHAT).score == 16.0


def test_function_pool_call_has_five_descriptors(opened):
    text = (
        "import os\ndef f(messages):\n    found = []\n    for n in range(1024):\n"
        "        try: os.fstat(n)\n        except OSError: continue\n        found.append(n)\n"
        "    print(found, end='')\n    return 1.0"
    )
    log = opened(text).evaluate(CHAT).log
    assert log in ("[0, 1, 2, 3]", "[0, 1, 2, 3, 4]")


def test_function_pool_replaces_a_killed_template(opened, until, alive):
    before = set(children(os.getpid()))
    sandbox = opened(GOOD)
    [supervisor] = set(children(os.getpid())) - before
    [template] = children(supervisor)
    os.kill(template, signal.SIGKILL)
    until(lambda: not alive(template))
    results = [sandbox.evaluate(CHAT) for _ in range(3)]
    assert results[-1].score == 1.0
    assert all(each.score == 1.0 or "sandbox failed" in each.error for each in results)


def test_function_pool_call_reports_that_it_was_killed(opened, until):
    before = set(children(os.getpid()))
    sandbox = opened(
        "import threading\ndef f(messages, ground_truth):\n"
        "    if ground_truth: threading.Event().wait()\n    return 1.0",
        limits=Limits(seconds=60),
    )
    [supervisor] = set(children(os.getpid())) - before
    [template] = children(supervisor)
    found = []
    thread = threading.Thread(target=lambda: found.append(sandbox.evaluate(CHAT, True)))
    thread.start()
    os.kill(until(lambda: next(iter(children(template)), None)), signal.SIGKILL)
    thread.join()
    assert not found[0].is_score_valid
    assert "sandbox failed" in found[0].error
    assert sandbox.evaluate(CHAT, False).score == 1.0


def test_function_pool_refuses_an_unknown_level():
    with pytest.raises(InvalidArgumentError, match=r"`level` must be .* got 'docker'"):
        function_pool.FunctionPool(b"{}", "", level="docker", workers=1, limits=Limits())


def test_function_pool_call_ends_at_its_time_limit(opened):
    text = "def f(messages):\n    import time\n    time.sleep(0.7)\n    return 1.0"
    result = opened(text, limits=Limits(seconds=0.2)).evaluate(CHAT)
    assert result.error.startswith("timeout: it was not done within 0.2 s")


@pytest.mark.parametrize("reuse", [False, True], ids=["forked", "reused"])
def test_function_worker_run_without_its_supervisor_is_a_sandbox_error(pool_of, reuse):
    pool = pool_of(GOOD, reuse=reuse)
    with pool._pool.worker() as worker:
        worker._channel.shutdown(socket.SHUT_RDWR)
        [answer] = worker.run([b"{}"])
    assert (answer.content, answer.execution.ending) == (None, "sandbox_error")
    assert answer.execution.detail.startswith("its worker is gone: ")
