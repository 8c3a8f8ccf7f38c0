"""A result reports what failed in its call."""

import contextlib
import json
import os
import signal
import textwrap
import threading

import pytest

from guerdon.errors import LoadError
from guerdon.rubrics import RewardSource
from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox
from guerdon.sandbox.protocol import Limits
from tests.sandbox.conformance import CASES
from tests.sandbox.conformance.host import Host

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
OTHER = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "41"}]

LEVELS = ["none", "process", "strict"]
LOCKED = LEVELS[1:]


# What goes wrong in a call


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "ValueError: no digits (line "),
        ("leave", "SystemExit: 7 (line "),
        ("nan", "RewardFunctionError: odd returned float nan"),
        ("text", "RewardFunctionError: odd returned '1.0' (str)"),
        ("none", "RewardFunctionError: odd returned None"),
    ],
)
def test_evaluate_reports_a_failure_as_in_process(odd, level, how, error):
    result = odd(how, level)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith(error.replace("float nan", "nan")) or "nan" in how
    assert result.error == odd(how, "none").error
    assert result.log == (None if level == "none" else "before\naside\n")


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("exit", "exited: it ended its process (exit code 0) before it had returned a result"),
        ("crash", "signal: SIGABRT (6), it ended before it had returned a result"),
        ("loop", "timeout: it was not done within 0.3 s"),
        ("flood", "output_limit: it printed more than 64 KiB"),
        ("set", "RewardFunctionError: odd returned {1} (set)"),
    ],
)
def test_evaluate_reports_how_a_call_ended(open_reward, level, how, error):
    sandbox = open_reward("odd", level=level, limits=Limits(seconds=0.3))
    result = sandbox.evaluate(CHAT, how=how)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith(error)
    assert result.log.startswith("before\n")
    assert sandbox.evaluate(CHAT, how="well").score == 1.0


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_with_reuse_replaces_an_ended_process(open_reward, level):
    sandbox = open_reward("odd", level=level, reuse=True)
    assert sandbox.evaluate(CHAT, how="exit").error.startswith("exited: it ended its process")
    assert sandbox.evaluate(CHAT, how="well").score == 1.0


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_keeps_state_only_with_reuse(open_reward, level):
    fresh = open_reward("odd", level=level)
    assert [fresh.evaluate(CHAT, how="count").score for _ in range(3)] == [1.0] * 3
    reused = open_reward("odd", level=level, reuse=True)
    first, second = (reused.evaluate(CHAT, how="count").score for _ in range(2))
    assert second == first + 1


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_log_excludes_output_of_the_import(open_reward, level):
    assert open_reward("answered", level=level).evaluate(CHAT, "42").log is None


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_ignores_the_log_of_a_function(odd, level):
    assert odd("close", level).score == 1.0
    assert odd("log", level).log == "before\naside\n"


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_batch_refuses_a_wrong_number_of_results(open_reward, level):
    results = open_reward("wrong_number", level=level).evaluate_batch([CHAT, OTHER])
    assert [result.error for result in results] == [
        "RewardFunctionError: wrong_number must return one result for each of 2 rollouts, got 1"
    ] * 2


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_batch_keeps_valid_results(open_reward, level):
    results = open_reward("some_wrong", level=level).evaluate_batch([CHAT] * 4)
    assert [result.is_score_valid for result in results] == [True, False, False, False]
    assert "metrics['a'] is {1} (set)" in results[3].error


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_batch_without_results_is_invalid(write, level):
    path = write("def r(rollouts_messages):\n    import os; os._exit(3)")
    with EvalSandbox(f"{path}:r", level=level) as sandbox:
        results = sandbox.evaluate_batch([CHAT, OTHER])
    assert [result.error for result in results] == [
        "exited: it ended its process (exit code 3) before it had returned a result"
    ] * 2


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_refuses_a_forged_answer(write, level):
    path = write("""
        import json
        from guerdon.rubrics.sandboxed.inside import LoadedReward
        def r(messages, answer): pass
        LoadedReward.answer = lambda self, job: json.loads(job)["others"]["answer"].encode()
    """)
    answers = {
        '{"version": "guerdon-call/2"}': "its version is 'guerdon-call/2'",
        "nothing": "Invalid JSON",
        json.dumps({"version": "guerdon-call/1", "results": [{"score": "1"}]}): "is a finite float",
        json.dumps({"version": "guerdon-call/1", "results": [{"score": 1}] * 2}): "has 2 results",
    }
    with EvalSandbox(f"{path}:r", level=level) as sandbox:
        for answer, error in answers.items():
            result = sandbox.evaluate(CHAT, answer=answer)
            assert not result.is_score_valid
            assert result.error.startswith("the sandbox's answer")
            assert error in result.error


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("{}", "its description: version: Field required"),
        ('{"version": "guerdon-call/1", "parameters": 1}', "its description: parameters"),
        ("x" * (1 << 21), "its description has 2,097,152 bytes"),
    ],
    ids=["empty", "mode", "long"],
)
def test_eval_sandbox_refuses_a_forged_description(write, level, answer, error):
    path = write(f"""
        from guerdon.rubrics.sandboxed.inside import LoadedReward
        LoadedReward.description = property(
            lambda self: {answer!r}.encode(), lambda self, value: None
        )
        def r(messages): return 1.0
    """)
    with pytest.raises(LoadError, match=error):
        EvalSandbox(f"{path}:r", level=level)


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_reports_a_killed_call(descendants, open_reward, level):
    sandbox = open_reward("odd", level=level, limits=Limits(seconds=30))
    before = descendants()
    results = []
    thread = threading.Thread(target=lambda: results.append(sandbox.evaluate(CHAT, how="loop")))
    thread.start()
    while not (new := descendants() - before):
        pass
    for pid in new:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join(10)
    [result] = results
    assert result.error.startswith("sandbox_error: the sandbox failed")
    assert sandbox.evaluate(CHAT, how="well").score == 1.0


@pytest.mark.parametrize("level", ["strict"])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.way == "function"], ids=lambda case: case.name
)
def test_eval_sandbox_withstands_the_abuse_cases_of_functions(case, level):
    text = textwrap.dedent(case.program) + textwrap.dedent("""
        def score(messages, ground_truth=None):
            from guerdon import EvaluateResult
            return EvaluateResult(score=0.0, reason=str(call(ground_truth)))
    """)
    source = RewardSource(text, "score")
    with Host() as host, EvalSandbox(source, level=level, limits=case.limits) as sandbox:
        aims = [host.facts["secret"], host.facts["tcp"], host.facts["pid"]]
        sandbox.evaluate(CHAT, "leave")
        result = sandbox.evaluate(CHAT, aims)
        assert host.disturbed() is None
    assert result.reason is not None, result.error
    assert result.reason.startswith("passed: ")
