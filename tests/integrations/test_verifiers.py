"""`guerdon.integrations.verifiers`, without verifiers; `make trainers` tests both together."""

import sys
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from guerdon import EvaluateResult, NumericAnswer, StepOutput, reward_function
from guerdon.errors import CreditError, EnvError, MissingExtraError, RewardFunctionError
from guerdon.integrations import verifiers
from guerdon.integrations.text_episode import TextEpisode
from trainers.locks import AsyncJudge, Judge, Lock, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Text(BaseModel):
    role: str
    content: str | None = None
    tool_calls: list[dict[str, str]] | None = None
    provider_state: list[int] | None = None


class Problem(BaseModel):
    prompt: str = "6 × 7?"
    answer: str = "42"
    topic: str = "products"


class Trace(SimpleNamespace):
    """A trace with one branch; messages that begin with * were sampled."""

    def __init__(self, *texts, **fields):
        super().__init__(rewards={}, metrics={}, info={}, errors=[], ok=True, stop_condition=None)
        self.nodes = []
        for number, text in enumerate(texts):
            self.add("user" if number % 2 == 0 else "assistant", text)
        self.__dict__.update(fields)

    def add(self, role, text, parent=-1):
        parent = len(self.nodes) - 1 if parent == -1 else parent
        node = SimpleNamespace(
            parent=parent if parent is not None and parent >= 0 else None,
            message=Text(role=role, content=text.removeprefix("*")),
            sampled=text.startswith("*"),
            mask=[False, True, True],
            advantages=None,
        )
        self.nodes.append(node)

    @property
    def branches(self):
        return [SimpleNamespace(nodes=self.nodes)]

    @property
    def reward(self):
        return float(sum(each for each in self.rewards.values() if each is not None))

    def record_reward(self, name, value):
        self.rewards[name] = value


@pytest.fixture
def v1(monkeypatch):
    """Replaces verifiers, of which `reward` uses the decorator."""

    def marked(weight):
        def mark(function):
            function.weight = weight
            return function

        return mark

    stub = SimpleNamespace(reward=marked)
    monkeypatch.setitem(sys.modules, "verifiers", SimpleNamespace(v1=stub))
    monkeypatch.setitem(sys.modules, "verifiers.v1", stub)


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
async def test_reward_scores_the_trace_and_records_components_and_steps(v1, judge):
    score = verifiers.reward(tree(judge), name="solved", weight=2.0)
    trace = Trace("2 × 2?", "A: 4", "6 × 7?", "*A: 41", "Sure?", "*A: 42")
    assert await score(task=Problem(), trace=trace) == 1.0
    assert (score.__name__, score.weight) == ("solved", 2.0)
    assert trace.metrics == {"solved/rubric_0": 2.0, "solved/rubric_1": 1.0}
    about = {"fingerprint": tree(judge).fingerprint(), "step_rewards": {"3": 0.0, "5": 2.0}}
    assert trace.info == {"guerdon": {"solved": about}}


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
async def test_reward_raises_if_the_reward_fails(v1, judge):
    score = verifiers.reward(tree(judge))
    trace = Trace("6 × 7?", "*down")
    with pytest.raises(RewardFunctionError, match=r"the reward failed: .*the judge is down"):
        await score(task=Problem(), trace=trace)
    assert trace.metrics == {"reward/rubric_0": None, "reward/rubric_1": None}
    assert trace.rewards == {}


async def test_reward_is_a_method_and_passes_the_fields_of_the_data(v1):
    @reward_function
    def shown(messages, topic, ground_truth=None):
        assert messages[1].tool_calls[0]["function"] == {"name": "look", "arguments": "{}"}
        assert "provider_state" not in messages[1]
        assert (topic, ground_truth) == ("products", "products")
        return 0.5

    class Task:
        score = verifiers.reward(shown, ground_truth="topic")

    trace = Trace("6 × 7?", "*")
    call = {"id": "1", "type": "function", "name": "look", "arguments": "{}"}
    trace.nodes[1].message = Text(role="assistant", tool_calls=[call], provider_state=[1])
    assert await Task().score(task=Problem(), trace=trace) == 0.5


async def test_reward_raises_if_no_turn_was_sampled(v1):
    trace = Trace("6 × 7?", "A: 42", "6 × 7?")  # an example in the prompt, which is right
    with pytest.raises(RewardFunctionError, match="first_turn"):
        await verifiers.reward(NumericAnswer())(task=Problem(), trace=trace)
    assert trace.info["guerdon"]["reward"]["step_rewards"] == {}


async def test_reward_puts_step_outputs_on_sampled_turns_only(v1, caplog):
    @reward_function
    def stepwise(messages):
        outputs = [StepOutput(step_index=index, base_reward=index) for index in (-1, 0, 1, 2, 2, 7)]
        return EvaluateResult(score=1.0, step_outputs=outputs)

    trace = Trace("2 × 2?", "4", "6 × 7?", "*41", "Sure?", "*42")
    await verifiers.reward(stepwise, weight=2.0)(task=Problem(), trace=trace)
    assert trace.info["guerdon"]["reward"]["step_rewards"] == {"3": 2.0}
    [record] = caplog.records
    assert "4 step outputs of reward were left out: step -1: there is no such" in record.message


async def test_reward_keeps_the_ground_truth_of_data_without_the_named_field(v1):
    class Plain(BaseModel):
        prompt: str = "6 × 7?"
        ground_truth: str = "42"

    score = verifiers.reward(NumericAnswer())
    assert await score(task=Plain(), trace=Trace("6 × 7?", "*42")) == 1.0


def test_reward_taskset_and_environment_need_verifiers(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    for make in (lambda: verifiers.reward(tree()), lambda: verifiers.taskset([])):
        with pytest.raises(MissingExtraError, match="pip install 'verifiers"):
            make()
    with pytest.raises(MissingExtraError, match="pip install 'verifiers"):
        verifiers.environment(Lock)


# Environments


class Interaction:
    """Replies with given texts; after them, the run has ended."""

    def __init__(self, *replies, error=None):
        data = SimpleNamespace(reset={"seed": 37})
        self.trace = Trace(task=SimpleNamespace(data=data), stop_condition="max_turns")
        self._replies = list(replies)
        self._error = error

    async def turn(self, text):
        if not self._replies:
            if self._error:
                self.trace.errors.append(self._error)
            return SimpleNamespace(terminated=True)
        reply = self._replies.pop(0)
        self.trace.add("user", text)
        self.trace.add("assistant", f"*{reply}")
        return SimpleNamespace(terminated=False, last_reply=reply)


async def played(interaction):
    async with TextEpisode.open(Lock) as episode:
        await verifiers._play(episode, interaction, "opened")
    return interaction.trace


async def test_environment_records_the_sum_of_the_step_rewards():
    trace = await played(Interaction("3", "5", "7"))
    assert trace.rewards == {"opened": 2.0}
    assert trace.metrics == {"opened/rubric_0": 2.0}
    assert trace.info["guerdon"]["opened"]["step_rewards"] == {"1": 1.0, "3": 0.0, "5": 1.0}
    texts = [node.message.content for node in trace.nodes]
    assert texts == ["first dial", "3", "click", "5", "nothing", "7"]


async def test_environment_records_no_reward_if_the_reward_fails():
    interaction = Interaction("3", "9")
    with pytest.raises(EnvError, match=r"the reward of step 1 failed: .*the scale is broken"):
        await played(interaction)
    assert interaction.trace.rewards == {"opened": None}


async def test_environment_records_no_reward_without_a_step_or_if_the_run_failed():
    with pytest.raises(EnvError, match="the run ended before the first step: max_turns"):
        await played(Interaction())
    trace = await played(Interaction("3", error="no connection"))
    assert trace.rewards == {"opened": None}
    assert (await played(Interaction("3"))).rewards == {"opened": 1.0}


# Credit


def recorded(trace, steps, **fields):
    trace.rewards["reward"] = sum(steps.values())
    trace.info["guerdon"] = {"reward": {"fingerprint": "", "step_rewards": steps}}
    trace.__dict__.update(fields)
    return trace


def advantages(traces):
    return [[node.advantages for node in trace.nodes if node.sampled] for trace in traces]


def test_step_advantages_are_set_for_all_sampled_tokens_of_a_turn():
    good = recorded(Trace("q", "*3", "click", "*7"), {"1": 1.0, "3": 1.0})
    bad = recorded(Trace("q", "*5", "nothing", "*7"), {"1": 0.0, "3": 1.0})
    credit = verifiers.step_advantages(
        [good, bad], ["a", "a"], normalize="mean", episode_stats="trajectories"
    )
    assert credit.mask.all()
    # Outcome: ±0.5. In the state "q" the returns are 2 and 1: ±0.5.
    assert advantages([good, bad]) == [[[1.0, 1.0], [0.5, 0.5]], [[-1.0, -1.0], [-0.5, -0.5]]]


@pytest.mark.parametrize(
    "failure", [{"ok": False}, {"rewards": {}}, {"rewards": {"reward": 1.0, "judge": None}}]
)
def test_step_advantages_leave_out_traces_without_a_valid_reward(failure):
    traces = [recorded(Trace("q", f"*{n}"), {"1": float(n)}) for n in (0, 1, 2)]
    failed = recorded(Trace("q", "*9"), {"1": 9.0}, **failure)
    alone = verifiers.step_advantages(traces, ["a"] * 3, method="grpo")
    expected = advantages(traces)
    credit = verifiers.step_advantages([*traces, failed], ["a"] * 4, method="grpo")
    assert advantages([*traces, failed]) == [*expected, [None]]
    assert credit.advantage[:3].tolist() == alone.advantage.tolist()


def test_step_advantages_follow_the_branches_of_a_trace():
    seen = []

    def state(step):
        seen.append([message.text for message in step.resulting_messages_history])
        return 0

    trace = recorded(Trace("q", "*1"), {"1": 1.0})
    trace.add("user", "summary", parent=None)
    trace.add("assistant", "*2")
    verifiers.step_advantages([trace], ["a"], state_key=state)
    assert seen == [["q", "1"], ["summary", "2"]]


def test_step_advantages_change_no_node_if_the_batch_is_rejected():
    trace = recorded(Trace("q", "*1"), {"1": 1.0})

    def broken(step):
        raise KeyError("board")

    with pytest.raises(CreditError, match="the state key raised KeyError"):
        verifiers.step_advantages([trace], ["a"], state_key=broken)
    with pytest.raises(ValueError, match="shorter"):
        verifiers.step_advantages([trace], [])
    assert advantages([trace]) == [[None]]
