"""EvalSandbox: reward functions at every level, what they give and how they fail."""

import asyncio
import contextlib
import json
import os
import pickle
import signal
import textwrap
import threading
from pathlib import Path

import anyio
import numpy as np
import pytest

from guerdon.errors import (
    AsyncRubricError,
    InvalidArgumentError,
    SandboxError,
    SandboxUnavailableError,
    SpecError,
)
from guerdon.functions import RewardFunction, load_reward
from guerdon.models import EvaluateResult, Message, Rollout
from guerdon.rollouts import score_rollouts
from guerdon.rubrics import as_rubric
from guerdon.sandbox.evaluating.eval_sandbox import BatchInterrupted, EvalSandbox
from guerdon.sandbox.evaluating.source import RewardSource
from guerdon.sandbox.limits import Limits

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
OTHER = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "41"}]

REWARDS = """
    import anyio, os, sys
    from guerdon import EvaluateResult, NumericAnswer, Rubric, StepOutput, WeightedSum
    from guerdon import reward_function

    print("imported")
    calls = 0

    def answered(messages, ground_truth, *, bonus=0.0):
        return float(ground_truth in messages[-1].text) + bonus

    @reward_function
    async def waited(messages, ground_truth=None):
        await anyio.sleep(0)
        return float(messages[-1].text == ground_truth)

    @reward_function
    def detailed(messages, **others):
        steps = [StepOutput(step_index=0, base_reward=0.5, reason="fair", metrics={"a": [1]})]
        return EvaluateResult(score=1, reason="said so", metrics={"inf": float("inf"), **others},
                              step_outputs=steps)

    def shortest(rollouts_messages, ground_truths=None, weights=None):
        print("of", len(rollouts_messages))
        lengths = [len(messages) for messages in rollouts_messages]
        return [float(length == min(lengths)) for length in lengths]

    @reward_function(mode="batch")
    async def echoed(rollouts_messages, ground_truths):
        return [{"score": 1.0, "metrics": {"truth": truth}} for truth in ground_truths]

    def by_place(conversations, truths=None):
        return [0.25] * len(conversations)

    solved = NumericAnswer()

    class Fails(Rubric):
        def forward(self, action, observation):
            if action.turn == 1:
                raise ValueError("no luck")
            return 0.5

    both = WeightedSum([NumericAnswer(), Fails()], [0.5, 0.5])

    def odd(messages, how):
        global calls
        calls += 1
        if how == "count":
            return calls
        print("before")
        print("aside", file=sys.stderr)
        if how == "raise":
            raise ValueError("no digits")
        if how == "exit":
            os._exit(0)
        if how == "leave":
            sys.exit(7)
        if how == "crash":
            os.abort()
        if how == "loop":
            while True:
                pass
        if how == "flood":
            while True:
                print("x" * 1000)
        if how == "import":
            import beside
        if how == "close":
            sys.stdout.close()
        return {"set": {1}, "nan": float("nan"), "text": "1.0", "none": None,
                "log": EvaluateResult(score=1, log="not so")}.get(how, 1.0)

    def wrong_number(rollouts_messages):
        return [1.0]

    def some_wrong(rollouts_messages):
        return [1.0, "no", float("inf"), {"score": 2, "metrics": {"a": {1}}}]
"""


def strict():
    try:
        EvalSandbox("guerdon:NumericAnswer", level="strict").close()
    except SandboxUnavailableError:
        return False
    return True


LEVELS = ["none", "process", "strict"]
LOCKED = LEVELS[1:]


@pytest.fixture(scope="session")
def _strict_works():
    return strict()


@pytest.fixture(autouse=True)
def _where_it_works(request, _strict_works):
    callspec = getattr(request.node, "callspec", None)
    if callspec and callspec.params.get("level") == "strict" and not _strict_works:
        pytest.skip("strict doesn't work on this machine")


@pytest.fixture(scope="module")
def rewards(tmp_path_factory):
    """The file of the rewards above."""
    path = tmp_path_factory.mktemp("rewards") / "reward.py"
    path.write_text(textwrap.dedent(REWARDS))
    path.with_name("beside.py").write_text("VALUE = 1\n")
    return str(path)


@pytest.fixture(scope="module")
def opened():
    """Sandboxes that are open, by what they were opened with."""
    with contextlib.ExitStack() as stack:
        found = {}
        yield stack, found


@pytest.fixture
def open_reward(rewards, opened):
    """Opens a sandbox for one of the rewards above; tests share it."""
    stack, found = opened

    def open_it(name, mode=None, **options):
        options.setdefault("level", "process")
        key = (name, mode, *sorted(options.items()))
        if key not in found:
            found[key] = stack.enter_context(EvalSandbox(f"{rewards}:{name}", mode, **options))
        return found[key]

    return open_it


@pytest.fixture
def odd(open_reward):
    def call(how, level="process", **options):
        return open_reward("odd", level=level, **options).evaluate(CHAT, how=how)

    return call


def descendants(pid):
    """The processes under one, the nearest first."""
    found = [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]
    return found + [below for child in found for below in descendants(child)]


# What a function gives is the same everywhere


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reuse", [False, True], ids=["fork", "reuse"])
def test_a_function_scores_a_conversation(open_reward, level, reuse):
    sandbox = open_reward("answered", level=level, reuse=reuse)
    assert sandbox.evaluate(CHAT, "42").score == 1.0
    assert sandbox.evaluate([Message(**each) for each in OTHER], "42").score == 0.0
    assert sandbox.evaluate(CHAT, "42", bonus=0.5, unknown=object()).score == 1.5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reuse", [False, True], ids=["fork", "reuse"])
def test_an_async_function_runs_on_a_loop_of_its_own(open_reward, level, reuse):
    sandbox = open_reward("waited", level=level, reuse=reuse)
    assert [sandbox.evaluate(CHAT, "42").score for _ in range(3)] == [1.0] * 3
    assert not sandbox.function.is_async or level == "none"


@pytest.mark.parametrize("level", LEVELS)
def test_a_whole_result_comes_through(open_reward, level):
    result = open_reward("detailed", level=level).evaluate(CHAT, more=(1, "\ud800"))
    assert (result.score, result.reason, result.log) == (1.0, "said so", None)
    assert result.metrics["inf"] == float("inf")
    assert list(result.metrics["more"]) == [1, "\ud800"]
    [step] = result.step_outputs
    assert (step.base_reward, step.reason, step.metrics) == (0.5, "fair", {"a": [1]})


@pytest.mark.parametrize("level", LEVELS)
def test_a_batch_is_scored_in_one_call(open_reward, level):
    sandbox = open_reward("shortest", level=level)
    assert sandbox.mode == "batch"
    results = sandbox.evaluate_batch([CHAT, CHAT[:1]])
    assert [result.score for result in results] == [0.0, 1.0]
    assert [result.log for result in results] == [None if level == "none" else "of 2\n", None]


@pytest.mark.parametrize("level", LEVELS)
def test_a_batch_of_one_and_one_of_none(open_reward, level):
    sandbox = open_reward("echoed", level=level)
    assert sandbox.evaluate(CHAT, "42").metrics == {"truth": "42"}
    assert sandbox.evaluate_batch([]) == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_pointwise_function_scores_each_of_a_batch_in_order(open_reward, level):
    sandbox = open_reward("answered", level=level, workers=2)
    results = sandbox.evaluate_batch([CHAT, OTHER] * 4, ["42"] * 8, bonus=1.0)
    assert [result.score for result in results] == [2.0, 1.0] * 4
    assert sandbox.evaluate_batch([]) == []


@pytest.mark.parametrize("level", LEVELS)
def test_ground_truths_may_be_an_array(open_reward, level):
    results = open_reward("echoed", level=level).evaluate_batch([CHAT, OTHER], np.array([1, 2]))
    assert [result.metrics["truth"] for result in results] == [1, 2]


@pytest.mark.anyio
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["answered", "waited"])
async def test_the_async_twins_give_the_same(open_reward, level, name):
    sandbox = open_reward(name, level=level, workers=2)
    assert (await sandbox.evaluate_async(CHAT, "42")).score == 1.0
    results = await sandbox.evaluate_batch_async([CHAT, OTHER, CHAT], ["42"] * 3)
    assert [result.score for result in results] == [1.0, 0.0, 1.0]


@pytest.mark.anyio
async def test_the_async_twin_of_a_batch(rewards):
    async with EvalSandbox(f"{rewards}:shortest", level="process") as sandbox:
        results = await sandbox.evaluate_batch_async([CHAT, CHAT[:1]])
    assert [result.score for result in results] == [0.0, 1.0]


def test_in_process_a_running_loop_is_no_place_for_an_async_function(open_reward):
    async def call():
        open_reward("waited", level="none").evaluate(CHAT, "42")

    with pytest.raises(AsyncRubricError, match="await evaluate_async"):
        asyncio.run(call())


@pytest.mark.parametrize("level", LEVELS)
def test_a_mode_that_is_said_is_that_of_reward_function(open_reward, level):
    sandbox = open_reward("by_place", "batch", level=level)
    assert [each.score for each in sandbox.evaluate_batch([CHAT, OTHER])] == [0.25, 0.25]
    assert open_reward("answered", "pointwise", level=level).mode == "pointwise"
    assert open_reward("solved", "pointwise", level=level).is_rubric


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["answered", "solved"])
def test_another_mode_than_the_functions_is_refused(open_reward, level, name):
    with pytest.raises(SpecError, match="takes 'messages', but its mode is said to be 'batch'"):
        open_reward(name, "batch", level=level)


# What is known of it


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["answered", "detailed", "shortest", "waited", "solved"])
def test_what_is_known_of_it_is_what_load_reward_finds(open_reward, rewards, level, name):
    sandbox = open_reward(name, level=level)
    reward = load_reward(f"{rewards}:{name}")
    if isinstance(reward, RewardFunction):
        assert (sandbox.name, sandbox.mode) == (name, reward.mode)
        assert sandbox.parameters == reward.parameters
        assert sandbox.fingerprint == reward.fingerprint
    else:
        assert (sandbox.name, sandbox.is_rubric) == ("NumericAnswer", True)
        assert sandbox.fingerprint == reward.fingerprint()
    assert (sandbox.level, bool(sandbox.promise)) == (level, True)
    assert sandbox.name in repr(sandbox)


def test_the_fingerprint_of_a_text_follows_the_text():
    def fingerprint(text):
        with EvalSandbox(RewardSource(text, "r"), level="process") as sandbox:
            return sandbox.fingerprint

    text = "LIMIT = {}\ndef r(messages): return float(LIMIT)"
    assert fingerprint(text.format(1)) == fingerprint(text.format(1)) != fingerprint(text.format(2))


# Where it comes from


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_is_a_reward_with_lines(level):
    source = RewardSource("def r(messages):\n    return 1 / (len(messages) - 2)\n", "r")
    with EvalSandbox(source, level=level) as sandbox:
        assert sandbox.evaluate(CHAT[:1]).score == -1.0
        assert (
            sandbox.evaluate(CHAT).error
            == "ZeroDivisionError: division by zero (line 2 of <reward>)"
        )


@pytest.mark.parametrize("level", LEVELS)
def test_an_installed_module_is_a_reward(level):
    with EvalSandbox("guerdon.rubrics:NumericAnswer", level=level) as sandbox:
        assert sandbox.evaluate(OTHER, "42").score == 0.0
        assert sandbox.evaluate(CHAT, "42").score == 1.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("module", ["mine_package.inner", "mine_single", "mine_space.inner"])
def test_a_module_of_ones_own_is_found_with_its_package(
    write, tmp_path, monkeypatch, level, module
):
    monkeypatch.chdir(tmp_path)
    write("VALUE = 0.5\n", "mine_package/beside.py")
    write("", "mine_package/__init__.py")
    write(
        "from mine_package import beside\nfrom .beside import VALUE\ndef r(messages): return VALUE",
        "mine_package/inner.py",
    )
    write("# coding: latin-1\ndef r(messages): return 0.5", "mine_single.py")
    write("from mine_space.more import VALUE\ndef r(messages): return VALUE", "mine_space/inner.py")
    write("VALUE = 0.5\n", "mine_space/more.py")
    with EvalSandbox(f"{module}:r", level=level) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.5
        fingerprint = sandbox.fingerprint
    assert fingerprint == load_reward(f"{module}:r").fingerprint


@pytest.mark.parametrize("level", LOCKED)
def test_what_lies_beside_a_file_needs_to_be_allowed(write, tmp_path, level):
    path = write("from beside import VALUE\ndef r(messages): return VALUE")
    write("VALUE = 0.25\n", "beside.py")
    with pytest.raises(SpecError) as caught:
        EvalSandbox(f"{path}:r", level=level)
    said = str(caught.value)
    assert said.startswith(f"{path}:r: importing it raised ModuleNotFoundError: No module named 'b")
    assert said.endswith(f"add --allow-read {tmp_path} (allow_read=['{tmp_path}'])")
    assert caught.value.traceback.count(path) == 1
    with EvalSandbox(f"{path}:r", level=level, allow_read=[tmp_path]) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.25


@pytest.mark.parametrize("level", LOCKED)
def test_a_file_of_a_package_imports_the_others_where_that_is_allowed(write, tmp_path, level):
    path = write("from .more import VALUE\ndef r(messages): return VALUE", "mine_pack/reward.py")
    write("VALUE = 0.25\n", "mine_pack/more.py")
    write("", "mine_pack/__init__.py")
    with pytest.raises(SpecError, match=r"attempted relative import .* add --allow-read"):
        EvalSandbox(f"{path}:r", level=level)
    with EvalSandbox(f"{path}:r", level=level, allow_read=[tmp_path]) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.25


def test_what_a_call_imports_from_beside_is_told_likewise(odd, rewards):
    error, folder = odd("import").error, Path(rewards).parent
    assert error.startswith("ModuleNotFoundError: No module named 'beside' (line ")
    assert error.endswith(f"add --allow-read {folder} (allow_read=['{folder}'])")


@pytest.mark.parametrize("level", ["strict"])
def test_a_file_beside_is_read_only_where_that_is_allowed(write, tmp_path, level):
    path = write("def r(messages): return float(open(__file__.replace('reward.py', 'n')).read())")
    write("0.75", "n")
    with EvalSandbox(f"{path}:r", level=level) as sandbox:
        assert sandbox.evaluate(CHAT).error.startswith("PermissionError")
    with EvalSandbox(f"{path}:r", level=level, allow_read=[tmp_path / "n"]) as sandbox:
        assert sandbox.evaluate(CHAT).score == 0.75


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def r(messages:\n", "importing it raised SyntaxError"),
        ("x = 1\nimport no_such_thing\n", "No module named 'no_such_thing'"),
        ("def other(messages): return 1.0\n", "has no 'r'; it has ['other']"),
        ("def q(messages): return 1.0\nimport sys; sys.exit('bye')", "SystemExit: bye"),
        ("r = 3\n", "r"),
        ("def r(*, other): return 1.0\n", "r"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    ],
    ids=["syntax", "import", "name", "exit", "number", "arguments", "interrupt"],
)
def test_what_cant_be_loaded_is_told_when_it_is_opened(write, level, text, said):
    if level == "none" and "KeyboardInterrupt" in text:
        pytest.skip("in process, ctrl-C is ctrl-C")
    with pytest.raises(SpecError) as caught:
        EvalSandbox(f"{write(text)}:r", level=level)
    assert said in str(caught.value)


@pytest.mark.parametrize("level", LEVELS)
def test_the_traceback_is_that_of_the_persons_code_alone(write, level):
    path = write("def fail():\n    raise ValueError('no \\ud800')\nfail()\n")
    with pytest.raises(SpecError) as caught:
        EvalSandbox(f"{path}:r", level=level)
    trace = caught.value.traceback
    assert trace.count("File ") == trace.count(path) == 2
    assert "raise ValueError" in trace


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os; os._exit(0)", "it ended its process (exit code 0)"),
        ("import os; os.abort()", "signal 6 (SIGABRT)"),
    ],
    ids=["exit", "abort"],
)
def test_a_file_that_ends_its_process_while_it_is_imported(write, level, text, said):
    with pytest.raises(SpecError) as caught:
        EvalSandbox(f"{write(text)}:r", level=level)
    assert f"importing it: {said}" in str(caught.value)


def test_requirements_are_checked_before_anything_is_started(monkeypatch):
    from guerdon.sandbox.local import functions

    monkeypatch.setattr(functions, "FunctionPool", None)
    source = RewardSource("def r(messages): return 1.0", "r", ("no-such-thing>=1",))
    with pytest.raises(SpecError, match="pip install 'no-such-thing>=1'"):
        EvalSandbox(source, level="process")


def test_the_host_never_runs_the_code(write, tmp_path, monkeypatch):
    text = f"import os\ndef r(messages): return 1.0\nr.__name__ = str(os.getpid())\n"
    monkeypatch.chdir(tmp_path)
    write(text, "mine_pid.py")
    for spec in (f"{write(text)}:r", "mine_pid:r", RewardSource(text, "r")):
        with EvalSandbox(spec, level="process") as sandbox:
            assert sandbox.name.isdigit()
            assert sandbox.name != str(os.getpid())


# What goes wrong in a call


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "ValueError: no digits (line "),
        ("leave", "SystemExit: 7 (line "),
        ("nan", "RewardFunctionError: odd gave float nan"),
        ("text", "RewardFunctionError: odd gave '1.0' (str)"),
        ("none", "RewardFunctionError: odd gave None"),
    ],
)
def test_what_fails_is_told_as_in_process(odd, level, how, error):
    result = odd(how, level)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith(error.replace("float nan", "nan")) or "nan" in how
    assert result.error == odd(how, "none").error
    assert result.log == (None if level == "none" else "before\naside\n")


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("exit", "it ended its process (exit code 0) before it had given a result"),
        ("crash", "signal 6 (SIGABRT): it ended before it had given a result"),
        ("loop", "timeout: it was not done within 0.3 s"),
        ("flood", "output limit: it printed more than 64 KiB"),
        ("set", "RewardFunctionError: odd gave {1} (set)"),
    ],
)
def test_what_ends_without_a_result_is_invalid_and_says_how(open_reward, level, how, error):
    sandbox = open_reward("odd", level=level, limits=Limits(seconds=0.3))
    result = sandbox.evaluate(CHAT, how=how)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith(error)
    assert result.log.startswith("before\n")
    assert sandbox.evaluate(CHAT, how="well").score == 1.0


@pytest.mark.parametrize("level", LOCKED)
def test_one_that_reuses_its_process_gets_a_new_one_when_it_has_ended(open_reward, level):
    sandbox = open_reward("odd", level=level, reuse=True)
    assert sandbox.evaluate(CHAT, how="exit").error.startswith("it ended its process")
    assert sandbox.evaluate(CHAT, how="well").score == 1.0


@pytest.mark.parametrize("level", LOCKED)
def test_no_call_finds_what_another_left_unless_that_was_asked_for(open_reward, level):
    fresh = open_reward("odd", level=level)
    assert [fresh.evaluate(CHAT, how="count").score for _ in range(3)] == [1.0] * 3
    reused = open_reward("odd", level=level, reuse=True)
    first, second = (reused.evaluate(CHAT, how="count").score for _ in range(2))
    assert second == first + 1


@pytest.mark.parametrize("level", LOCKED)
def test_what_a_file_prints_when_it_is_imported_is_in_no_log(open_reward, level):
    assert open_reward("answered", level=level).evaluate(CHAT, "42").log is None


@pytest.mark.parametrize("level", LOCKED)
def test_a_function_may_close_its_streams_and_say_nothing_of_its_own_log(odd, level):
    assert odd("close", level).score == 1.0
    assert odd("log", level).log == "before\naside\n"


@pytest.mark.parametrize("level", LEVELS)
def test_a_wrong_number_of_results_makes_the_batch_invalid(open_reward, level):
    results = open_reward("wrong_number", level=level).evaluate_batch([CHAT, OTHER])
    assert [result.error for result in results] == [
        "RewardFunctionError: wrong_number gave 1 results for 2 rollouts; it takes one for each"
    ] * 2


@pytest.mark.parametrize("level", LOCKED)
def test_of_a_batch_only_what_is_wrong_is_invalid(open_reward, level):
    results = open_reward("some_wrong", level=level).evaluate_batch([CHAT] * 4)
    assert [result.is_score_valid for result in results] == [True, False, False, False]
    assert "metrics['a'] is {1} (set)" in results[3].error


@pytest.mark.parametrize("level", LOCKED)
def test_a_batch_that_ends_without_results_is_invalid_as_a_whole(write, level):
    path = write("def r(rollouts_messages):\n    import os; os._exit(3)")
    with EvalSandbox(f"{path}:r", level=level) as sandbox:
        results = sandbox.evaluate_batch([CHAT, OTHER])
    assert [result.error for result in results] == [
        "it ended its process (exit code 3) before it had given a result"
    ] * 2


@pytest.mark.parametrize("level", LOCKED)
def test_a_worker_that_lies_gets_no_further_than_an_invalid_result(write, level):
    path = write("""
        import json
        from guerdon.sandbox.evaluating.calling import Callee
        def r(messages, said): pass
        Callee.answer = lambda self, job: json.loads(job)["others"]["said"].encode()
    """)
    answers = {
        '{"version": "guerdon-call/2"}': "its version is 'guerdon-call/2'",
        "nothing": "Invalid JSON",
        json.dumps({"version": "guerdon-call/1", "results": [{"score": "1"}]}): "is a finite float",
        json.dumps({"version": "guerdon-call/1", "results": [{"score": 1}] * 2}): "has 2 results",
    }
    with EvalSandbox(f"{path}:r", level=level) as sandbox:
        for said, error in answers.items():
            result = sandbox.evaluate(CHAT, said=said)
            assert not result.is_score_valid
            assert result.error.startswith("the sandbox's answer")
            assert error in result.error


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("{}", "its description: version: Field required"),
        ('{"version": "guerdon-call/1", "mode": "both"}', "its description: mode"),
        ("x" * (1 << 21), "its description has 2,097,152 bytes"),
    ],
    ids=["empty", "mode", "long"],
)
def test_a_function_that_lies_about_itself_isnt_opened(write, level, said, error):
    path = write(f"""
        from guerdon.sandbox.evaluating.calling import Callee
        Callee.described = property(lambda self: {said!r}.encode(), lambda self, value: None)
        def r(messages): return 1.0
    """)
    with pytest.raises(SpecError, match=error):
        EvalSandbox(f"{path}:r", level=level)


@pytest.mark.parametrize("level", LOCKED)
def test_a_call_that_is_killed_from_outside_is_invalid_and_nobody_else_notices(open_reward, level):
    sandbox = open_reward("odd", level=level, limits=Limits(seconds=30))
    before = set(descendants(os.getpid()))
    results = []
    thread = threading.Thread(target=lambda: results.append(sandbox.evaluate(CHAT, how="loop")))
    thread.start()
    while not (new := set(descendants(os.getpid())) - before):
        pass
    for pid in new:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join(10)
    [result] = results
    assert result.error.startswith("the sandbox failed")
    assert sandbox.evaluate(CHAT, how="well").score == 1.0


# A rubric in a sandbox


@pytest.mark.parametrize("level", LOCKED)
def test_a_rubric_is_replayed_over_the_conversation(open_reward, level):
    result = open_reward("both", level=level).evaluate(CHAT, "42")
    assert (result.score, result.metrics) == (0.75, {"rubric_0": 1.0, "rubric_1": 0.5})
    result = open_reward("solved", level=level).evaluate([*CHAT, *OTHER], "42")
    assert result.score == 1.0
    assert [(each.step_index, each.base_reward) for each in result.step_outputs] == [
        (0, 1.0), (1, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("level", LOCKED)
def test_a_rubric_that_fails_tells_the_step_and_what_was_known(open_reward, level):
    result = open_reward("both", level=level).evaluate([*CHAT, *CHAT], "42")
    assert result.error == "step 1: rubric 'rubric_1': ValueError: no luck"
    assert not result.is_score_valid
    assert result.metrics == {"rubric_0": 1.0, "rubric_0/mean": 1.0, "rubric_1/mean": 0.5}
    assert open_reward("both", level=level).evaluate([]).error.startswith("RolloutError: the r")


# Arguments that are none


@pytest.mark.parametrize("level", LEVELS)
def test_what_are_no_messages_is_refused_before_anything_is_sent(open_reward, level):
    sandbox = open_reward("answered", level=level)
    with pytest.raises(InvalidArgumentError, match=r"messages\[0\]"):
        sandbox.evaluate([{"role": "nobody", "content": "x"}])
    with pytest.raises(InvalidArgumentError, match=r"rollouts_messages\[1\] is 'x'"):
        sandbox.evaluate_batch([CHAT, "x"])
    with pytest.raises(InvalidArgumentError, match="rollouts_messages is 'xy'"):
        sandbox.evaluate_batch("xy")
    with pytest.raises(InvalidArgumentError, match=r"with one for each of the 2 rollouts"):
        sandbox.evaluate_batch([CHAT, CHAT], ["42"])


def test_what_json_cant_hold_is_named_with_its_place(open_reward):
    sandbox = open_reward("answered")
    with pytest.raises(InvalidArgumentError, match=r"^ground_truth is \{1\} \(set\)"):
        sandbox.evaluate(CHAT, {1})
    with pytest.raises(InvalidArgumentError, match=r"^bonus\['x'\] is 1j \(complex\)"):
        sandbox.evaluate(CHAT, "42", bonus={"x": 1j})
    with pytest.raises(InvalidArgumentError, match=r"^ground_truths\[1\]\[0\] is b'1' \(bytes\)"):
        sandbox.evaluate_batch([CHAT, CHAT], ["42", [b"1"]])
    with pytest.raises(InvalidArgumentError, match=r"^rollouts_messages\[1\]\[0\]\['at'\] is"):
        sandbox.evaluate_batch([CHAT, [{"role": "user", "content": "", "at": {1}}]])


def test_what_the_function_doesnt_take_isnt_sent(open_reward):
    assert open_reward("odd").evaluate(CHAT, {1}, how="well", more={1}).score == 1.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": True}, "workers is True"),
        ({"mode": "both"}, "mode is 'both'; it takes 'pointwise' or 'batch'"),
        ({"allow_read": "/tmp"}, "allow_read is '/tmp'; it takes a list"),
        ({"level": "no such"}, "there is no sandbox level 'no such'"),
        ({"spec": 3}, "spec is 3; it takes file.py:name"),
    ],
    ids=["workers", "bool", "mode", "read", "level", "spec"],
)
def test_an_argument_that_is_none_is_named(arguments, said):
    arguments = {"spec": "guerdon:NumericAnswer", "level": "process", **arguments}
    with pytest.raises(InvalidArgumentError, match=said):
        EvalSandbox(**arguments)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_closed_says_so(rewards, level):
    sandbox = EvalSandbox(f"{rewards}:answered", level=level)
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxError, match="the sandbox of answered is closed"):
        sandbox.evaluate(CHAT, "42")


# As a reward function


@pytest.mark.parametrize("level", LEVELS)
def test_it_goes_where_a_reward_function_goes(open_reward, level):
    function = open_reward("answered", level=level).function
    rollout = Rollout.from_row({"messages": CHAT, "ground_truth": "42", "bonus": 0.5})
    [row] = score_rollouts(function, [rollout])
    assert (row["score"], row["error"]) == (1.5, None)
    [row] = score_rollouts(as_rubric(function), [rollout])
    assert row["score"] == 1.5
    assert function(CHAT, "42").score == 1.0


def test_rows_have_the_log_and_groups_are_scored_together(open_reward):
    function = open_reward("shortest").function
    rollouts = [
        Rollout.from_row({"messages": messages, "group": 1})
        for messages in ([*CHAT, *CHAT], CHAT, CHAT)
    ]
    rows = list(score_rollouts(function, rollouts))
    assert [row["score"] for row in rows] == [0.0, 1.0, 1.0]
    assert [row.get("log") for row in rows] == ["of 3\n", None, None]


def test_what_a_row_cant_send_makes_the_row_invalid(open_reward):
    function = open_reward("detailed").function
    rollout = Rollout.from_row({"messages": CHAT, "when": {1}})
    [row] = score_rollouts(function, [rollout])
    assert row["error"].startswith("InvalidArgumentError: when is {1} (set)")


def test_it_cant_be_pickled(open_reward):
    with pytest.raises(InvalidArgumentError, match="answered runs in a sandbox of this process"):
        pickle.dumps(open_reward("answered").function)


# Several at once, and the end


def test_several_threads_may_call_it(open_reward):
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
def test_closing_it_brings_back_who_is_inside(rewards, level, reuse):
    before = set(descendants(os.getpid()))
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
    assert set(descendants(os.getpid())) <= before


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("level", LOCKED)
def test_ctrl_c_ends_a_batch_and_keeps_what_is_finished(write, level, workers):
    path = write("""
        def r(messages):
            while messages[-1].text != "42":
                pass
            return 1.0
    """)
    before = set(descendants(os.getpid()))
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
    assert set(descendants(os.getpid())) <= before
    with pytest.raises(SandboxError, match="is closed"):
        sandbox.evaluate(CHAT)


@pytest.mark.anyio
@pytest.mark.parametrize("level", LOCKED)
async def test_a_cancelled_call_ends_and_the_next_one_is_answered(open_reward, level):
    sandbox = open_reward("odd", level=level, limits=Limits(seconds=30))
    with anyio.move_on_after(0.2):
        await sandbox.evaluate_batch_async([CHAT, CHAT], how="loop")
    with anyio.fail_after(5):
        assert (await sandbox.evaluate_async(CHAT, how="well")).score == 1.0


def test_a_result_tells_no_log_unless_it_is_given_one():
    assert EvaluateResult(score=1).log is None
    assert EvaluateResult(score=1, log="x").log == "x"
