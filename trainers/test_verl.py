"""`guerdon.integrations.verl` with verl's loader, reward managers, registry and batches."""

import asyncio
import logging
import math
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transfer_queue
from datasets import Dataset
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.v1 import (
    AgentLoopWorkerTQ,
    PPOTrainerSync,
    get_trainer_cls,
    register_trainer,
)
from verl.workers.reward_manager import get_reward_manager_cls

from guerdon import WeightedSum
from guerdon.credit import StepBatch, gigpo
from guerdon.errors import InvalidArgumentError, RewardFunctionError
from guerdon.integrations.verl import StepCredit, agent_loop, register, step_advantages
from trainers.agreement import ROLLOUTS
from trainers.locks import Lock, Right
from trainers.questions import Questions
from trainers.rollouts import texts
from trainers.verl_worker import Client, make_batch, make_config, make_tokenizer

REWARD = """
from guerdon.integrations import verl
from trainers.locks import AsyncJudge, Judge, tree
from trainers.rollouts import make_reward

compute_score = verl.compute_score({tree}, on_invalid={on_invalid})
"""
ANSWERS = ["A: 42", "A: 41", "down"]
TOKENIZER = SimpleNamespace(
    decode=lambda tokens, skip_special_tokens: "".join(map(chr, tokens.tolist()))
)


def loaded(folder, judge="Judge", on_invalid='"raise"', tree=None):
    """The function of a file, as verl loads it."""
    path = folder / "reward.py"
    path.write_text(REWARD.format(tree=tree or f"tree({judge})", on_invalid=on_invalid))
    setting = {"path": str(path), "name": "compute_score", "reward_kwargs": {}}
    return get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": setting}}))


def answered(answers, truths=None):
    """A batch of responses, padded at their right."""
    truths = truths or ["42"] * len(answers)
    width = max(map(len, answers))
    tokens = torch.zeros(len(answers), width, dtype=torch.int64)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer)] = torch.tensor([ord(letter) for letter in answer])
    prompts = torch.full((len(answers), 1), ord("?"))
    mask = torch.cat([torch.ones_like(prompts), (tokens > 0).long()], dim=1)
    columns = {
        "data_source": np.array(["sums"] * len(answers), dtype=object),
        "reward_model": np.array([{"ground_truth": each} for each in truths], dtype=object),
        "extra_info": np.array([{"index": row} for row in range(len(answers))], dtype=object),
    }
    tensors = {"prompts": prompts, "responses": tokens, "attention_mask": mask}
    return DataProto.from_dict(tensors=tensors, non_tensors=columns)


@pytest.mark.parametrize("judge", ["Judge", "AsyncJudge"])
def test_compute_score_scores_rows_in_the_reward_loop(judge, tmp_path):
    function = loaded(tmp_path, judge, "-1.0")

    async def scored():
        manager = NaiveRewardManager(OmegaConf.create({}), TOKENIZER, function)
        batch = answered(ANSWERS)
        return [await manager.run_single(batch[[row]]) for row in range(len(batch))]

    rows = asyncio.run(scored())
    assert [row["reward_score"] for row in rows] == [1.0, 0.0, -1.0]
    assert [row["reward_extra_info"]["reward_failed"] for row in rows] == [0.0, 0.0, 1.0]
    assert len({tuple(row["reward_extra_info"]) for row in rows}) == 1
    assert math.isnan(rows[2]["reward_extra_info"]["rubric_1"])


@pytest.mark.parametrize("judge", ["Judge", "AsyncJudge"])
def test_compute_score_fails_the_row_of_the_reward_loop_if_the_reward_fails(judge, tmp_path):
    function = loaded(tmp_path, judge)

    async def scored():
        manager = NaiveRewardManager(OmegaConf.create({}), TOKENIZER, function)
        return await manager.run_single(answered(["down"]))

    with pytest.raises(RewardFunctionError, match="the judge is down"):
        asyncio.run(scored())


def test_compute_score_gives_the_reward_loop_the_scores_of_the_reward(tmp_path, agrees):
    function = loaded(tmp_path, tree="make_reward()")
    truths = [row["ground_truth"] for row in ROLLOUTS]
    batch = answered([texts(row)[1] for row in ROLLOUTS], truths)

    async def score_all():
        manager = NaiveRewardManager(OmegaConf.create({}), TOKENIZER, function)
        calls = (manager.run_single(batch[[row]]) for row in range(len(batch)))
        return await asyncio.gather(*calls, return_exceptions=True)

    rows = asyncio.run(score_all())
    arrived = [row["reward_score"] if isinstance(row, dict) else row for row in rows]
    agrees("verl, `NaiveRewardManager`", arrived, failures="`RewardFunctionError`")


def test_compute_score_scores_a_batch_of_the_legacy_manager_also_with_its_timeout(tmp_path):
    manager = get_reward_manager_cls("naive")
    legacy = manager(TOKENIZER, 0, loaded(tmp_path), compute_score_timeout=60)
    found = legacy(answered(ANSWERS[:2]), return_dict=True)
    assert found["reward_tensor"].sum(-1).tolist() == [1.0, 0.0]
    assert found["reward_extra_info"]["rubric_1"] == [1.0, 0.0]
    with pytest.raises(RewardFunctionError, match="the judge is down"):
        legacy(answered(ANSWERS))


# Advantages


def batch_of(groups, size, width=6, seed=0):
    """Rewards at the last tokens, masks with gaps, and the groups of rows in a random order."""
    numbers = np.random.default_rng(seed)
    index = numbers.permutation([f"prompt {group}" for group in range(groups)] * size)
    rewards = torch.zeros(len(index), width)
    rewards[:, -1] = torch.tensor(numbers.normal(2, 3, len(index)), dtype=torch.float32)
    mask = torch.tensor(numbers.random((len(index), width)) < 0.7).long()
    return rewards, mask, index.astype(object)


THEIRS = {
    "guerdon_grpo": core_algos.compute_grpo_outcome_advantage,
    "guerdon_dr_grpo": lambda **row: core_algos.compute_grpo_outcome_advantage(
        norm_adv_by_std_in_grpo=False, **row
    ),
    "guerdon_rloo": core_algos.compute_rloo_outcome_advantage,
}


def computed(name, rewards, mask, index):
    register()
    arguments = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    return core_algos.get_adv_estimator_fn(name)(config=None, **arguments), arguments


@pytest.mark.parametrize("name", THEIRS)
def test_register_estimators_agree_with_those_of_verl(name, figure):
    (advantages, returns), arguments = computed(name, *batch_of(64, 8))
    theirs, _ = THEIRS[name](**arguments)
    assert advantages.dtype == theirs.dtype
    difference = float((advantages - theirs).abs().max())
    figure(f"verl, {name}: 512 rows, largest difference to verl's own {difference:.1e}")
    assert difference < 2e-6
    assert torch.equal(advantages, returns)


@pytest.mark.parametrize("name", THEIRS)
def test_register_estimators_leave_out_rows_with_a_reward_that_is_nan(name):
    rewards, mask, index = batch_of(8, 8)
    failed = np.arange(len(index)) % 5 == 0
    with_nan = rewards.clone()
    with_nan[failed, -1] = math.nan
    (advantages, _), _ = computed(name, with_nan, mask, index)
    (others, _), _ = computed(name, rewards[~failed], mask[~failed], index[~failed])
    assert torch.equal(advantages[~failed], others)
    assert not advantages[failed].any()


def test_step_advantages_of_a_data_proto_are_those_of_gigpo():
    rewards, mask, index = batch_of(4, 12)
    order = np.argsort(index, kind="stable")  # of each prompt, 4 trajectories of 3 steps
    columns = {
        "uid": index[order],
        "trajectory": np.repeat(np.arange(16), 3).astype(object),
        "step": np.tile(np.arange(3), 16).astype(object),
        "state": np.array(["start", "left", "right"] * 16, dtype=object),
    }
    tensors = {"token_level_rewards": rewards, "response_mask": mask}
    found = step_advantages(DataProto.from_dict(tensors=tensors, non_tensors=columns))
    batch = StepBatch.from_arrays(
        rewards.sum(-1).numpy(), trajectory=columns["trajectory"], step=columns["step"],
        group=columns["uid"], state=columns["state"],
    )  # fmt: skip
    expected = gigpo(batch).advantage[:, None] * mask.numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


# The trainer's hook


class Queue:
    """A stand-in for verl's TransferQueue, which needs ray: fields by the keys of the outputs."""

    def __init__(self, rows, padding=()):
        self.rows, self.statuses, self._padding = rows, {}, padding

    def meta(self, keys):
        tags = [{"is_padding": key in self._padding} for key in keys]
        return transfer_queue.KVBatchMeta(partition_id="train", keys=list(keys), tags=tags)

    def kv_batch_get(self, keys, partition_id, select_fields):
        rows = [self.rows[key] for key in keys]
        columns = {name: [row[name] for row in rows] for name in select_fields if name in rows[0]}
        tensors = {
            name: torch.nested.as_nested_tensor(values, layout=torch.jagged)
            if isinstance(values[0], torch.Tensor)
            else NonTensorStack(*values)
            for name, values in columns.items()
        }
        return TensorDict(tensors, batch_size=len(keys))

    def kv_batch_put(self, keys, partition_id, fields):
        for key, row in zip(keys, fields, strict=True):
            values = {name: value.data for name, value in row.items()}
            self.rows.setdefault(key, {}).update(values)
        return self.meta(keys)

    async def async_kv_put(self, key, partition_id, tag):
        self.statuses[key] = tag["status"]

    async def async_kv_batch_put(self, keys, fields, tags, partition_id):
        self.kv_batch_put(keys, partition_id, fields)


def stand_in(rows, monkeypatch, padding=()):
    """Replace verl's TransferQueue with one that has these rows."""
    queue = Queue(rows, padding)
    for name in ("kv_batch_get", "kv_batch_put", "async_kv_put", "async_kv_batch_put"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    monkeypatch.setattr(transfer_queue, "init", lambda: None)
    return queue


@register_trainer("gigpo")
class Trainer(StepCredit, PPOTrainerSync):
    """A trainer that has its configuration only."""

    method = "gigpo"

    def __init__(self, **algorithm):
        settings = {"use_kl_in_reward": False, "adv_estimator": "guerdon_dr_grpo", "gamma": 1.0}
        rollout = {"actor_rollout_ref": {"rollout": {"n": 3}}}
        chosen = settings | {"lam": 1.0} | algorithm
        self.config = OmegaConf.create({"algorithm": chosen, **rollout})


def outputs(**extra_fields):
    """Outputs of an agent loop: 2 prompts with 3 rollouts of 1 to 3 steps, scored with 0 to 5."""
    rows = {}
    for uid in ("one_prompt", "other"):
        for session in range(3):
            for step in range(session + 1):
                tokens = 2 + step
                rewards = torch.zeros(tokens)
                rewards[-1] = session + (0 if uid == "other" else 3)  # which verl copies to all
                extra = {name: value[step] for name, value in extra_fields.items()}
                rows[f"{uid}_{session}_{step}"] = {
                    "uid": uid,
                    "rm_scores": rewards,
                    "response_mask": torch.tensor([1, 0] + [1] * step),
                    "extra_fields": extra | {"state": ["start", "left", "right"][step]},
                }
    return rows


def trained(rows, monkeypatch, trainer=Trainer, padding=(), **algorithm):
    """The advantages that the trainer stores; its outputs are in another order."""
    queue = stand_in(rows, monkeypatch, padding)
    register()
    trainer(**algorithm)._compute_advantage(queue.meta(sorted(rows, reverse=True)), {})
    return {key: row["advantages"].tolist() for key, row in rows.items()}


def expected(rows, rewards):
    """What GiGPO gives the tokens of each output, for the rewards of the steps."""
    places = [key.rsplit("_", 2) for key in rows]
    credit = gigpo(
        StepBatch.from_arrays(
            rewards,
            trajectory=[tuple(place[:2]) for place in places],
            step=[int(place[2]) for place in places],
            group=[place[0] for place in places],
            state=[row["extra_fields"]["state"] for row in rows.values()],
            episode_score=[float(row["rm_scores"].sum()) for row in rows.values()],
        )
    )
    masks = [row["response_mask"].tolist() for row in rows.values()]
    advantages = credit.advantage.astype(np.float32).tolist()
    given = zip(rows, masks, advantages, strict=True)
    return {key: [bit * advantage for bit in mask] for key, mask, advantage in given}


def test_step_credit_gives_each_output_of_a_rollout_its_advantage(monkeypatch):
    assert get_trainer_cls("gigpo") is Trainer
    rows = outputs()
    found = trained(rows, monkeypatch)
    assert found == expected(rows, [None] * len(rows))
    assert found["other_2_0"][0] != found["other_2_2"][0]  # steps of one rollout


def test_step_credit_takes_the_rewards_of_steps_from_extra_fields(monkeypatch):
    rows = outputs(step_reward=[0.5, -1.0, 2.0])
    rewards = [row["extra_fields"]["step_reward"] for row in rows.values()]
    assert trained(rows, monkeypatch) == expected(rows, rewards)


def test_step_credit_leaves_out_a_rollout_whose_score_is_nan(monkeypatch):
    rows = outputs()
    for key, row in rows.items():
        row["rm_scores"][-1] = math.nan if key.startswith("other_1") else row["rm_scores"][-1]
    found = trained(rows, monkeypatch)
    valid = {key: row for key, row in rows.items() if not key.startswith("other_1")}
    wanted = expected(valid, [None] * len(valid))
    assert {key: found[key] for key in valid} == wanted
    assert not any(any(found[key]) for key in rows.keys() - valid.keys())


def test_step_credit_refuses_the_kl_penalty_in_the_reward(monkeypatch):
    with pytest.raises(InvalidArgumentError, match="use_kl_loss=True"):
        trained(outputs(), monkeypatch, use_kl_in_reward=True)


class WholeBatchTrainer(Trainer):
    """A trainer whose estimator has statistics of the whole batch."""

    method = "reinforce_pp"


def test_step_credit_leaves_out_the_rows_with_which_verl_fills_a_batch(monkeypatch):
    rows = outputs(step_reward=[0.5, -1.0, 2.0])
    wanted = trained(rows, monkeypatch, WholeBatchTrainer)
    fill = rows["other_2_2"] | {"response_mask": torch.tensor([0]), "rm_scores": torch.zeros(1)}
    padding = ["pad_0_0", "pad_1_0"]
    filled = rows | {key: dict(fill) for key in padding}
    found = trained(filled, monkeypatch, WholeBatchTrainer, padding)
    assert found == wanted | {"pad_0_0": [0.0], "pad_1_0": [0.0]}


# Agent loops


def played(plays, *arguments, **options):
    """The queue after a worker of verl has played rollouts of one prompt with these answers."""
    return played_all({37: plays}, *arguments, **options)


def played_all(plays, folder, monkeypatch, *settings, env=Lock, **options):
    """The same for several prompts, with the answers of each by its seed."""
    agent_loop(env, name="lock", **options)
    queue = stand_in({}, monkeypatch)
    rollouts = f"actor_rollout_ref.rollout.n={len(next(iter(plays.values())))}"
    make_worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # without ray
    worker = make_worker(make_config(folder, rollouts, *settings), Client(plays))

    async def play():
        await worker.generate_sequences(make_batch(list(plays), "lock"))
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(play())
    return queue


def answers_of(queue):
    """The keys of the outputs of each rollout by its answers."""
    rollouts = {}
    for key in sorted(queue.rows):
        rollouts.setdefault(key.rsplit("_", 1)[0], []).append(key)
    decode = partial(make_tokenizer().decode, skip_special_tokens=True)
    return {
        tuple(decode(queue.rows[key]["responses"]) for key in keys): keys
        for keys in rollouts.values()
    }


def test_agent_loop_logs_the_fingerprint_once(tmp_path, monkeypatch, caplog):
    class Other(Lock):
        def __init__(self):
            super().__init__()
            self.rubric = WeightedSum([Right()], weights=[0.5])

    fingerprint = Other().rubric.fingerprint()
    with caplog.at_level(logging.INFO, "guerdon.integrations"):
        played([["3", "7"]] * 3, tmp_path, monkeypatch, env=Other)
    assert caplog.text.count(fingerprint) == 1


def test_agent_loop_returns_an_output_for_each_step(tmp_path, monkeypatch):
    queue = played([["3", "5", "7"]], tmp_path, monkeypatch)
    assert queue.statuses == {"prompt-37": "finished"}
    assert list(queue.rows) == ["prompt-37_0_0", "prompt-37_0_1", "prompt-37_0_2"]
    rows, decode = list(queue.rows.values()), make_tokenizer().decode
    user, end = "<|im_start|>user\n", "<|im_end|>"
    turn = f"{end}\n<|im_start|>assistant\n"
    prompt = f"{user}Open lock 37: first dial{turn}"
    conversation = [f"{prompt}3{end}", f"\n{user}click{turn}5{end}", f"\n{user}nothing{turn}7{end}"]
    assert [decode(row["responses"]) for row in rows] == [f"{digit}{end}" for digit in "357"]
    for number, row in enumerate(rows):
        assert decode(row["input_ids"]) == "".join(conversation[: number + 1])
        assert row["response_mask"].tolist() == [1, 1]  # the observation is in the prompt
        assert row["rollout_log_probs"].tolist() == [-0.5, -0.5]
        assert row["rm_scores"].tolist() == [0.0, 2.0]
    fields = [row["extra_fields"] for row in rows]
    assert [each["state"] for each in fields] == ["first dial", "click", "nothing"]
    assert [each["step_reward"] for each in fields] == [1.0, 0.0, 1.0]
    assert fields[-1]["reward_extra_info"] == {"rubric_0": 2.0, "turns": 3.0, "reward_failed": 0.0}
    assert [row["num_turns"] for row in rows] == [2, 4, 6]


def test_agent_loop_gives_step_credit_the_states_and_rewards_of_steps(tmp_path, monkeypatch):
    plays = [["3", "7"], ["5", "3", "7"], ["3", "5", "5", "7"]]
    rows = played(plays, tmp_path, monkeypatch).rows
    rewards = [row["extra_fields"]["step_reward"] for row in rows.values()]
    assert len(rewards) == 9
    assert trained(rows, monkeypatch) == expected(rows, rewards)


@pytest.mark.parametrize("answer", ["9", "no digit"])
def test_agent_loop_fails_the_rollout_if_a_step_fails(answer, tmp_path, monkeypatch):
    queue = played([["3", "7"], ["3", answer], ["5", "3", "7"]], tmp_path, monkeypatch)
    assert queue.statuses == {"prompt-37": "failure"}
    assert answers_of(queue).keys() == {("3", "7"), ("5", "3", "7")}


@pytest.mark.parametrize("answer", ["9", "no digit"])
def test_agent_loop_gives_the_whole_rollout_the_number_of_on_invalid(answer, tmp_path, monkeypatch):
    queue = played([["3", "7"], ["3", answer]], tmp_path, monkeypatch, on_invalid=-1.0)
    assert queue.statuses == {"prompt-37": "finished"}
    rollouts, rows = answers_of(queue), queue.rows
    failed = [rows[key] for key in rollouts["3", answer]]
    assert [float(row["rm_scores"].sum()) for row in failed] == [-1.0, -1.0]
    logged = {"rubric_0": 1.0, "turns": 1.0, "reward_failed": 1.0}
    assert failed[-1]["extra_fields"]["reward_extra_info"] == logged
    rewards = [None if key in rollouts["3", answer] else 1.0 for key in rows]
    assert trained(rows, monkeypatch) == expected(rows, rewards)


def test_agent_loop_leaves_the_rollout_out_of_step_credit_with_on_invalid_nan(
    tmp_path, monkeypatch
):
    plays = [["3", "7"], ["3", "9"], ["5", "3", "7"]]
    queue = played(plays, tmp_path, monkeypatch, on_invalid=math.nan)
    failed = answers_of(queue)["3", "9"]
    found = trained(queue.rows, monkeypatch)
    assert [found[key] for key in failed] == [[0.0, 0.0], [0.0, 0.0]]
    valid = {key: row for key, row in queue.rows.items() if key not in failed}
    rewards = [row["extra_fields"]["step_reward"] for row in valid.values()]
    assert {key: found[key] for key in valid} == expected(valid, rewards)


def test_agent_loop_fails_the_rollout_if_the_reset_fails(tmp_path, monkeypatch):
    class Stuck(Lock):
        def reset(self, seed=0, **kwargs):
            raise OSError("the lock is stuck")

    queue = played([["3"]], tmp_path, monkeypatch, env=Stuck, on_invalid=-1.0)
    assert (queue.statuses, queue.rows) == ({"prompt-37": "failure"}, {})


@pytest.mark.parametrize("limit", ["multi_turn.max_assistant_turns=2", "response_length=30"])
def test_agent_loop_ends_the_episode_at_the_limits_of_verl(limit, tmp_path, monkeypatch):
    setting = f"actor_rollout_ref.rollout.{limit}"
    queue = played([["3", "5", "7"]], tmp_path, monkeypatch, setting)
    assert list(answers_of(queue)) == [("3", "5")]
    assert [float(row["rm_scores"].sum()) for row in queue.rows.values()] == [1.0, 1.0]


def test_agent_loop_plays_concurrent_episodes_and_closes_their_environments(tmp_path, monkeypatch):
    made = []

    def make():
        made.append(Lock())
        return made[-1]

    plays = [["3", "7"]] * 7 + [["9"]]
    queue = played(plays, tmp_path, monkeypatch, env=make)
    assert len(queue.rows) == 14
    assert [each.is_closed for each in made] == [True] * 8


def test_agent_loop_gives_the_worker_the_scores_of_the_reward(tmp_path, monkeypatch, agrees):
    plays = {number: [[texts(row)[1]]] for number, row in enumerate(ROLLOUTS)}
    queue = played_all(plays, tmp_path, monkeypatch, env=Questions)
    rows = [queue.rows.get(f"prompt-{number}_0_0") for number in plays]
    arrived = [None if row is None else float(row["rm_scores"].sum()) for row in rows]
    agrees("verl, `agent_loop`", arrived, failures="None", tolerance=1e-6)


def test_agent_loop_uses_to_action_and_observation_text(tmp_path, monkeypatch):
    functions = {
        "to_action": lambda text: {"digit": len(text)},
        "observation_text": lambda seen: "dial",
    }
    queue = played([["xxx", "x" * 7]], tmp_path, monkeypatch, **functions)
    fields = [row["extra_fields"] for row in queue.rows.values()]
    assert [(each["state"], each["step_reward"]) for each in fields] == [("dial", 1.0)] * 2


# Other processes


def fresh(folder, *command, module="trainers.verl_extension"):
    """A new process, in which verl imports a module of VERL_USE_EXTERNAL_MODULES."""
    path = os.pathsep.join([str(folder), *sys.path])
    environment = os.environ | {"VERL_USE_EXTERNAL_MODULES": module, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=environment, capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip


def ran(folder, *command, **options):
    """What a new process prints."""
    done = fresh(folder, *command, **options)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_register_works_while_verl_is_imported(tmp_path):
    (tmp_path / "extension.py").write_text("from guerdon.integrations import verl; verl.register()")
    code = "from verl.trainer.ppo import core_algos as a; a.get_adv_estimator_fn('guerdon_rloo')"
    ran(tmp_path, "-c", code, module="extension")


def test_step_credit_and_agent_loop_are_registered_while_verl_is_imported(tmp_path):
    code = (
        "import hydra, verl\n"
        "from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "from verl.experimental.agent_loop.agent_loop import _agent_loop_registry\n"
        "loop = hydra.utils.get_class(_agent_loop_registry['lock']['_target_'])\n"
        "print(get_trainer_cls('gigpo').__name__, loop.__name__)\n"
    )
    assert ran(tmp_path, "-c", code).split()[-2:] == ["GiGPOTrainer", "Loop"]


def test_step_credit_gets_the_advantages_of_agent_loops_through_the_real_queue(tmp_path, figure):
    figure(ran(tmp_path, "-m", "trainers.verl_transfer_queue").splitlines()[-1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would train")
def test_step_credit_trainer_is_that_of_main_ppo_until_it_asks_for_a_gpu(tmp_path):
    make_config(tmp_path / "model")
    content = "Open the lock: {observation}"
    prompt = [{"role": "user", "content": content}]
    row = {"data_source": "lock", "prompt": prompt, "extra_info": {"seed": 37}}
    Dataset.from_list([row] * 4).to_parquet(tmp_path / "rows.parquet")
    settings = {
        "trainer.v1.trainer_mode": "gigpo",
        "trainer.n_gpus_per_node": 1,
        "algorithm.adv_estimator": "grpo",
        "data.train_files": tmp_path / "rows.parquet",
        "data.val_files": tmp_path / "rows.parquet",
        "data.train_batch_size": 2,
        "actor_rollout_ref.model.path": tmp_path / "model",
        "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1,
        "actor_rollout_ref.rollout.agent.default_agent_loop": "lock",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "ray_kwargs.ray_init.num_cpus": 4,
        "+ray_kwargs.ray_init.include_dashboard": False,
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    done = fresh(tmp_path, "-m", "verl.trainer.main_ppo", *overrides)
    # Without the module it would be "Unknown trainer 'gigpo'".
    assert "Total available GPUs 0 is less than total desired GPUs 1" in done.stderr
