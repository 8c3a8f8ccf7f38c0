"""Files with rewards, sandboxes that are open, and an interpreter that forgets."""

import contextlib
import os
import sys
import textwrap
from pathlib import Path

import pytest

from guerdon.errors import SandboxUnavailableError
from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]

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
        return EvaluateResult(score=1, reason="matches", metrics={"inf": float("inf"), **others},
                              step_outputs=steps)

    def equal(messages, ground_truth=None):
        return messages[-1].text == ground_truth

    def all_equal(rollouts_messages, ground_truths=None):
        return [messages[-1].text == "42" for messages in rollouts_messages]

    class Equal(Rubric):
        def forward(self, action, observation):
            return action.content == "42"

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


@pytest.fixture(autouse=True)
def forgetful():
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name.startswith(("guerdon_reward_", "mine_")):
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


@pytest.fixture
def descendants():
    """Returns the processes under this one now."""

    def under(pid):
        found = []
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has just ended
                found += map(int, children.read_text().split())
        return [*found, *(below for child in found for below in under(child))]

    return lambda: set(under(os.getpid()))
