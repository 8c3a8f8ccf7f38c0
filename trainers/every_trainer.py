"""One reward, every trainer: the same rollouts scored through each adapter, without its trainer."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import operator
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from gymnasium import spaces
from pydantic import BaseModel
from typer.testing import CliRunner

from guerdon import EnvPool, Rubric
from guerdon.cli import app
from guerdon.integrations import nemo_gym, openrlhf, skyrl, trl, verifiers, verl
from guerdon.integrations.gymnasium import GymnasiumEnv, GymnasiumVectorEnv
from guerdon.integrations.pettingzoo import PettingZooAECEnv
from trainers import gym_models, homes
from trainers import rollouts as given
from trainers.agreement import (
    HEADER,
    ROLLOUTS,
    Agreement,
    Arrival,
    agreement,
    attempt,
    direct,
    table,
)
from trainers.questions import Question, Questions
from trainers.rollouts import make_reward, texts
from trainers.skyrl_gym_stand_in import SKYRL_GYM

# Each way to a score ------------------------------------------------------------------------------


def trl_columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return what TRL passes to a reward function."""
    prompts, completions = zip(*map(texts, rows), strict=True)
    truths = [row["ground_truth"] for row in rows]
    return {"prompts": [*prompts], "completions": [*completions], "ground_truth": truths}


def _trl(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    rewards: list[Arrival] = trl.reward_func(make_reward(), name="sum")(**trl_columns(rows))
    return rewards


def _trl_columns(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    funcs, weights = trl.reward_funcs(make_reward())
    columns = trl_columns(rows)  # the same lists for each function, as in TRL
    found = zip(*[func(**columns) for func in funcs], strict=True)
    return [None if None in row else math.fsum(map(operator.mul, row, weights)) for row in found]


def _openrlhf(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    function = openrlhf.reward_func(make_reward())

    def score(row: dict[str, Any]) -> float:
        prompt, completion = texts(row)
        query = f"{prompt}{completion}<|im_end|>"
        return float(function([query], [prompt], [row["ground_truth"]])["rewards"])

    return [attempt(score, row) for row in rows]


def _verl(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    function = verl.compute_score(make_reward())

    def score(row: dict[str, Any]) -> float:
        completion = texts(row)[1]
        return float(function("sums", completion, row["ground_truth"], {})["score"])

    return [attempt(score, row) for row in rows]


def _skyrl(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    with patch.object(skyrl, "import_framework", return_value=SKYRL_GYM):
        env_class = skyrl.reward_environment(make_reward())

    def score(row: dict[str, Any]) -> float:
        prompt, completion = texts(row)
        env = env_class(extras={"ground_truth": row["ground_truth"]})
        env.init([{"role": "user", "content": prompt}])
        return float(env.step(completion)["reward"])

    return [attempt(score, row) for row in rows]


class Message(BaseModel):
    """A message with the fields of verifiers' messages that the adapter reads."""

    role: str
    content: str


def trace_of(row: dict[str, Any]) -> SimpleNamespace:
    """Return a rollout with the fields of verifiers' `Trace` that the adapter uses."""
    nodes = [
        SimpleNamespace(message=Message(**each), sampled=each["role"] == "assistant")
        for each in row["messages"]
    ]
    branches = [SimpleNamespace(nodes=nodes)]
    return SimpleNamespace(nodes=nodes, branches=branches, rewards={}, metrics={}, info={})


def _verifiers(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    class Data(BaseModel):
        answer: str

    marks = SimpleNamespace(reward=lambda weight: lambda function: function)
    with patch.object(verifiers, "import_framework", return_value=marks):
        score = verifiers.reward(make_reward())

    async def score_all() -> Any:
        calls = (score(task=Data(answer=row["ground_truth"]), trace=trace_of(row)) for row in rows)
        return await asyncio.gather(*calls, return_exceptions=True)

    arrived: list[Arrival] = asyncio.run(score_all())
    return arrived


def _nemo_gym(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    with patch.object(nemo_gym, "import_framework", return_value=gym_models.MODULE):
        server = nemo_gym.resources_server(make_reward())()

    async def score(row: dict[str, Any]) -> float:
        prompt, completion = texts(row)
        output = gym_models.message(completion)
        task = gym_models.task(prompt, output, expected_answer=row["ground_truth"])
        answer = await server.verify(server.verify.__annotations__["body"](**task))
        return float(answer.reward)

    async def score_all() -> Any:
        return await asyncio.gather(*map(score, rows), return_exceptions=True)

    arrived: list[Arrival] = asyncio.run(score_all())
    return arrived


class OfPlayer(Rubric):
    """The reward of the only agent."""

    def __init__(self) -> None:
        super().__init__()
        self.player = make_reward()

    def forward(self, action: Any, observation: Any) -> float:
        """Score the completion."""
        return float(self.player(action, observation))


class AgentQuestions(Questions):
    """The same, with a reward for each of its agents, of which it has one."""

    agents = ("player",)

    def __init__(self) -> None:
        super().__init__()
        self.rubric = OfPlayer()

    def reset(self, seed: int | None = None, **kwargs: Any) -> Question:
        """Ask the question of the rollout of this number."""
        observation = super().reset(seed)
        observation.metadata["agent"] = "player"
        return observation


SPACES = {
    "action_space": spaces.Text(1_000), "to_action": lambda text, *agent: {"content": text},
    "observation_space": spaces.Text(1_000, min_length=0),
    "to_observation": lambda seen, *agent: seen.text,
}  # fmt: skip


def _trl_tool(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    tool = trl.environment_factory(Questions)()

    def play(number: int) -> Arrival:
        tool.reset(seed=number)
        tool.answer(content=texts(rows[number])[1])
        reward: Arrival = tool.get_reward()
        return reward

    return [play(number) for number in range(len(rows))]


class Repeating:
    """What `rollout_func` uses of TRL's trainer, with a model that repeats the completions.

    The token of a prompt, and that of its completion, is the number of the rollout.
    """

    eos_token_id = 0
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=100))

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.processing_class, self._rows = self, rows

    def _tokenize_prompts(self, prompts: Sequence[str]) -> tuple[list[list[int]]]:
        return ([[int(prompt)] for prompt in prompts],)

    def _generate_single_turn(self, contexts: Any, *others: Any, **more: Any) -> tuple[Any, None]:
        return contexts, None

    def batch_decode(self, ids: Sequence[Sequence[int]], **options: Any) -> list[str]:
        """Return the completions."""
        return [texts(self._rows[number])[1] for (number,) in ids]

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        """Return a token for any text."""
        return {"input_ids": [0]}


def _trl_pool(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    with EnvPool(Questions, n=len(rows) // 4).sync() as pool:
        play = trl.rollout_func(
            pool, max_turns=1, turn="{observation}", to_action=lambda text: {"content": text},
            reset_arguments=lambda prompt: {"seed": int(prompt)},
        )  # fmt: skip
        played = play([str(number) for number in range(len(rows))], Repeating(rows))
    rewards: list[Arrival] = [*trl.episode_reward()(**played)]
    return rewards


def _gymnasium(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    env = GymnasiumEnv(Questions, **SPACES)

    def play(number: int) -> float:
        env.reset(seed=number)
        return env.step(texts(rows[number])[1])[1]

    return [attempt(play, number) for number in range(len(rows))]


def _gymnasium_vector(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    envs = GymnasiumVectorEnv(Questions, given.SIZE, on_invalid=math.nan, **SPACES)
    arrived: list[Arrival] = []
    for start in range(0, len(rows), given.SIZE):
        envs.reset(seed=start)
        batch = rows[start : start + given.SIZE]
        _, rewards, _, truncated, _ = envs.step([texts(row)[1] for row in batch])
        if not np.array_equal(np.isnan(rewards), truncated):
            raise AssertionError("a failed reward truncates its episode, and nothing else does")
        arrived += rewards.tolist()
    envs.close()
    return arrived


def _pettingzoo(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    env = PettingZooAECEnv(AgentQuestions, **SPACES)

    def play(number: int) -> float:
        env.reset(seed=number)
        env.step(texts(rows[number])[1])
        return env.rewards["player"]

    return [attempt(play, number) for number in range(len(rows))]


WAYS: dict[str, Callable[[Sequence[dict[str, Any]]], list[Arrival]]] = {
    "TRL, `reward_func`": _trl,
    "TRL, `reward_funcs`": _trl_columns,
    "TRL, `environment_factory`": _trl_tool,
    "TRL, `rollout_func`": _trl_pool,
    "OpenRLHF, `reward_func`": _openrlhf,
    "verifiers, `reward`": _verifiers,
    "verl, `compute_score`": _verl,
    "SkyRL, `reward_environment`": _skyrl,
    "NeMo Gym, `resources_server`": _nemo_gym,
    "Gymnasium, `GymnasiumEnv`": _gymnasium,
    "Gymnasium, `GymnasiumVectorEnv(on_invalid=math.nan)`": _gymnasium_vector,
    "PettingZoo, `PettingZooAECEnv`": _pettingzoo,
}


def scored_by_command() -> tuple[list[float | None], list[float | None]]:
    """Return the scores and the advantages of ``guerdon score --credit grpo``."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "rollouts.jsonl", Path(folder) / "scored.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in ROLLOUTS))
        spec = f"{Path(given.__file__).resolve()}:reward"
        command = ["score", str(source), "--reward", spec, "--credit", "grpo", "--out", str(out)]
        done = CliRunner().invoke(app, command)
        if done.exit_code != 1:  # 1: some rows failed
            raise RuntimeError(done.output) from done.exception
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [row["score"] for row in rows], [row["steps"][0]["advantage"] for row in rows]


# The table ---------------------------------------------------------------------------------------


@cache
def agreements() -> list[Agreement]:
    """Return the agreement of the command and of each adapter."""
    scores, credited = scored_by_command()
    found = [agreement("`guerdon score --credit grpo`", scores, credited)]
    return found + [agreement(way, score(ROLLOUTS)) for way, score in WAYS.items()]


def milliseconds(score: Callable[..., Any]) -> float:
    """Return how long the first 160 rollouts take, the shortest of five times."""
    times = []
    for _ in range(5):
        start = perf_counter()
        score(ROLLOUTS[:160])
        times.append(perf_counter() - start)
    return 1_000 * min(times)


def report() -> str:
    """Return the table of agreements, with what each adapter adds to the reward's time."""
    added = {way: milliseconds(score) - milliseconds(direct) for way, score in WAYS.items()}
    rows = [
        [*each.cells(), f"{added[each.way]:.1f}" if each.way in added else "–"]
        for each in agreements()
    ]
    return table([*HEADER, "ms added per 160 completions"], *rows)


if __name__ == "__main__":
    logging.disable()  # the failures are in the table
    print(report())
    if homes.AGREEMENTS.exists():
        print(homes.AGREEMENTS.read_text().replace("|\n", "| – |\n"), end="")
