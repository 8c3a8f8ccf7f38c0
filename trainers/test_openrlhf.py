"""`guerdon.integrations.openrlhf` with both executors of OpenRLHF and a fake engine."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from openrlhf.utils.agent import AgentExecutorBase, SingleTurnAgentExecutor

from guerdon.errors import EnvError
from guerdon.integrations.openrlhf import agent
from trainers.agreement import ROLLOUTS
from trainers.byte_tokenizer import END, make_tokenizer
from trainers.locks import Lock
from trainers.rollouts import texts

PROMPT = f"<|im_start|>user\n6 × 7?{END}\n<|im_start|>assistant\n"
TURN = f"\n<|im_start|>user\n{{observation}}{END}\n<|im_start|>assistant\n"
REWARD = """
from guerdon.integrations import openrlhf
from trainers.locks import AsyncJudge, Judge, tree

reward_func = openrlhf.reward_func(tree({judge}), on_invalid={on_invalid!r})
"""


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


class Engine:
    """Generates given texts; as in vLLM, the last token is the end of the turn, the text isn't."""

    def __init__(self, tokenizer, texts):
        self._tokenizer, self._texts = tokenizer, list(texts)

    async def generate(self, prompt, params, multi_modal_data=None):
        text = self._texts.pop(0)
        tokens = self._tokenizer(text + END)["input_ids"]
        output = SimpleNamespace(token_ids=tokens, text=text, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def executed(executor, tokenizer, texts, *, prompt=PROMPT, label="42"):
    params = SimpleNamespace(max_tokens=50, logprobs=None)
    engine = Engine(tokenizer, texts)
    return asyncio.run(executor.execute(prompt, label, params, 2000, tokenizer, engine))


# The executor of single turns


def single_turn(folder, judge="Judge", on_invalid="raise"):
    path = folder / "reward.py"
    path.write_text(REWARD.format(judge=judge, on_invalid=on_invalid))
    return SingleTurnAgentExecutor(str(path))


@pytest.mark.parametrize("judge", ["Judge", "AsyncJudge"])
def test_reward_func_scores_the_rollouts_of_the_single_turn_executor(judge, tmp_path, tokenizer):
    executor = single_turn(tmp_path, judge)
    outputs = [executed(executor, tokenizer, [text]) for text in ("A: 42", "A: 41")]
    assert [(each["reward"], each["scores"]) for each in outputs] == [(1.0, 1.0), (0.0, 0.0)]
    logs = {"rubric_0": 1.0, "rubric_1": 0.0, "reward_failed": 0.0}
    assert outputs[1]["extra_logs"] == logs


def test_reward_func_leaves_the_single_turn_executor_without_a_reward_if_it_fails(
    tmp_path, tokenizer, caplog
):
    output = executed(single_turn(tmp_path), tokenizer, ["down"])
    assert (output["reward"], output["scores"]) == (None, None)
    levels = {each.levelname: each.message for each in caplog.records}
    assert "the judge is down" in levels["ERROR"]


def test_reward_func_gives_the_single_turn_executor_the_number_of_on_invalid(tmp_path, tokenizer):
    output = executed(single_turn(tmp_path, on_invalid=-1.0), tokenizer, ["down"])
    assert (output["reward"], output["scores"]) == (-1.0, -1.0)
    assert output["extra_logs"]["reward_failed"] == 1.0
    assert math.isnan(output["extra_logs"]["rubric_1"])


def test_reward_func_gives_the_single_turn_executor_the_scores_of_the_reward(
    tmp_path, tokenizer, agrees
):
    path = tmp_path / "reward.py"
    path.write_text(
        "from guerdon.integrations import openrlhf\n"
        "from trainers.rollouts import make_reward\n"
        "reward_func = openrlhf.reward_func(make_reward())\n"
    )
    executor = SingleTurnAgentExecutor(str(path))
    arrived = []
    for row in ROLLOUTS:
        prompt, text = texts(row)
        output = executed(executor, tokenizer, [text], prompt=prompt, label=row["ground_truth"])
        arrived.append(output["reward"])
    agrees("OpenRLHF, `SingleTurnAgentExecutor`", arrived, failures="None")


# The executor of several turns

START = f"<|im_start|>user\nOpen the lock. {{observation}}{END}\n<|im_start|>assistant\n"


def played(tokenizer, *texts, **options):
    executor = agent(Lock, turn=TURN, **options)()
    return executed(executor, tokenizer, texts, prompt=START, label='{"seed": 37}')


def test_agent_plays_an_environment_with_the_multi_turn_executor(tokenizer):
    output = played(tokenizer, "3", "5", "7")
    assert (output["reward"], output["scores"]) == (2.0, 2.0)
    assert output["extra_logs"] == {"rubric_0": 2.0, "turns": 3.0, "reward_failed": 0.0}
    tokens = output["observation_tokens"]
    actions = [tokenizer.decode(tokens[slice(*each)]) for each in output["action_ranges"]]
    assert actions == [f"3{END}", f"5{END}", f"7{END}"]
    expected = START.replace("{observation}", "first dial") + f"3{END}"
    expected += TURN.replace("{observation}", "click") + f"5{END}"
    expected += TURN.replace("{observation}", "nothing") + f"7{END}"
    assert tokenizer.decode(tokens) == expected


def test_agent_raises_if_the_reward_fails(tokenizer):
    with pytest.raises(EnvError, match=r"the reward of step 1 failed: .*the scale is broken"):
        played(tokenizer, "3", "9", "7")


@pytest.mark.parametrize("text", ["9", "no digit"])
def test_agent_gives_the_whole_rollout_the_number_of_on_invalid(text, tokenizer):
    output = played(tokenizer, "3", text, "7", on_invalid=-1.0)
    assert (output["reward"], output["scores"]) == (-1.0, -1.0)
    assert output["extra_logs"] == {"rubric_0": 1.0, "turns": 1.0, "reward_failed": 1.0}
    assert len(output["action_ranges"]) == 2


def test_agent_plays_concurrent_episodes_and_closes_their_environments(tokenizer):
    made = []

    def make():
        made.append(Lock())
        return made[-1]

    executor = agent(make, turn=TURN)()
    params = SimpleNamespace(max_tokens=50, logprobs=None)

    async def play(seed):
        engine = Engine(tokenizer, [str(seed // 10), str(seed % 10)])
        label = f'{{"seed": {seed}}}'
        return await executor.execute(START, label, params, 2000, tokenizer, engine)

    async def play_all():
        return await asyncio.gather(*map(play, range(10, 18)))

    outputs = asyncio.run(play_all())
    assert isinstance(executor, AgentExecutorBase)  # which OpenRLHF checks
    assert [each["reward"] for each in outputs] == [2.0] * 8
    assert [each.is_closed for each in made] == [True] * 8
