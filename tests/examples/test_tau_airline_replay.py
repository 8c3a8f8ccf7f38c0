"""Recordings of tau-bench's airline, played on a real server."""

import asyncio
import json

import pytest

from examples.tau_airline.data import data_path
from examples.tau_airline.play import reward_of
from examples.tau_airline.replay import ENVIRONMENT, RENAMED, main, replay
from examples.tau_airline.reward import airline_reward
from guerdon import EnvPool, score_rollouts
from guerdon.envs.client.launchers import ProcessLauncher
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts import ReplayPolicy
from tests.examples.tau_airline import CANCEL, STOPPED, TASKS, assistant, turn, write_data

pytestmark = pytest.mark.edge  # real servers, in processes of their own


@pytest.fixture(scope="module")
def folder():
    try:
        folder = data_path()
    except InvalidArgumentError as error:
        pytest.skip(f"the recordings are missing: {error}")
    for name in ("trajectories.json", "tasks.json"):
        if not (folder / name).is_file():
            pytest.skip(f"{folder} has no {name}")
    return folder


@pytest.fixture(scope="module")
def records(folder):
    return json.loads((folder / "trajectories.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def server(folder):
    launcher = ProcessLauncher(ENVIRONMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_AIRLINE_DATA", str(folder))
        url = asyncio.run(launcher.start())
    yield url
    asyncio.run(launcher.stop())


@pytest.fixture(scope="module")
def played(server, records):
    return asyncio.run(replay(server, records))


def test_replay_rewards_all_recordings_as_published(played):
    assert len(played) == 100
    assert [each.rollout.id for each in played if not each.agrees] == []
    assert sum(reward_of(each.rollout.to_row()) for each in played) == 43.0


def test_replay_gets_the_recorded_conversations_except_for_provinces(played):
    answers = [answer for each in played for answer in each.answers()]
    assert len(answers) == 572
    differ = {name for name, text, recorded in answers if text != recorded}
    assert differ == {"get_user_details"}
    assert sum(text == recorded for _, text, recorded in answers) == 513
    for each in played:
        texts = [(message.role, message.text) for message in each.rollout.messages]
        recorded = [(message["role"], message["content"] or "") for message in each.record["traj"]]
        assert [(role, text.replace(*RENAMED)) for role, text in texts] == recorded


def test_replay_scores_each_step_live_as_its_recording(played):
    reward = airline_reward()
    for each in played:
        rollout = each.rollout.to_rollout()
        reward.reset()
        recorded = [reward.score(*step).components() for step in rollout.steps]
        live = [step.step_info["env_metadata"]["reward_components"] for step in each.rollout.steps]
        assert recorded == live, each.rollout.id
        [row] = score_rollouts(reward, [rollout])
        assert row["step_rewards"] == each.rollout.env_rewards


def test_env_pool_steps_recordings_of_tau_airline_together(server, records):
    chosen = [each for each in records if each["trial"] == 0][:16]
    said = [
        [message["content"] for message in each["traj"] if message["role"] == "user"]
        for each in chosen
    ]

    async def play():
        policies = [ReplayPolicy(each["traj"]) for each in chosen]
        async with EnvPool(server, n=16) as pool:
            await pool.reset_batch(
                options=[
                    {"task": each["task_id"], "user_messages": messages}
                    for each, messages in zip(chosen, said, strict=True)
                ]
            )
            rewards = {}
            first = [(await policy.get_action(None)).action for policy in policies]
            async for slot, observation in pool.as_completed(first):
                if observation.done:
                    rewards[slot] = observation.reward
                else:
                    pool.send(slot, (await policies[slot].get_action(None)).action)
        return [rewards[slot] for slot in range(16)]

    assert asyncio.run(play()) == [each["reward"] for each in chosen]


def test_replay_main_prints_the_published_agreement(folder, capsys, monkeypatch):
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(folder))
    assert main([]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "conversations: 100, rewards that agree: 100 (" in out
    assert "get_user_details 59 0 59" in out
    assert "all 572 513 572" in out


def test_replay_main_without_data_prints_what_is_missing_and_returns_2(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(tmp_path / "nowhere"))
    assert main([]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no tau-bench airline data (users.json, flights.json, ")
    assert str(tmp_path / "nowhere") in line
    assert "set TAU_AIRLINE_DATA" in line


@pytest.mark.parametrize("missing", ["tasks.json", "trajectories.json"])
def test_replay_main_without_recordings_returns_2(tmp_path, capsys, missing):
    lists = {"tasks": TASKS, "trajectories": []}
    del lists[missing.removesuffix(".json")]
    assert main([str(write_data(tmp_path, **lists))]) == 2
    assert f"{missing} is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("published", "code"), [(1.0, 0), (0.0, 1)])
def test_replay_main_prints_recordings_that_differ(tmp_path, capsys, monkeypatch, published, code):
    monkeypatch.setenv("TAU_AIRLINE_DATA", "")  # restored after main has set it
    calling, answer = turn(CANCEL)
    chat = [
        {"role": "user", "content": "Hi."},
        calling,
        {**answer, "name": "cancel_reservation"},
        assistant("Done."),
        STOPPED,
    ]
    record = {"task_id": 0, "trial": 1, "reward": published, "traj": chat}
    broken = {**record, "trial": 2, "traj": chat[:1] + chat[3:4]}  # the user has no answer
    records = [record] if code == 0 else [record, broken]
    assert main([str(write_data(tmp_path, tasks=TASKS, trajectories=records))]) == code
    out = capsys.readouterr().out
    assert f"conversations: {len(records)}, rewards that agree: {1 - code}" in out
    if code:
        assert "0-1: [0.0, 1.0], done" in out
        assert "0-2: [None], step 0: " in out
