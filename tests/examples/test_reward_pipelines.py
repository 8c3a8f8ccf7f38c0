"""Rewards in files: composed, changed by a training script, judged through an MCP server."""

import asyncio
import contextlib
import doctest
import importlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import mcp
import pytest

from examples.coding_env.candidates import candidates
from examples.coding_env.environment import CodingEnvironment
from examples.coding_env.models import CodeAction
from examples.coding_env.tasks import load_tasks
from examples.reward_pipelines import chess_shaping, coding, style_judge
from examples.reward_pipelines.chess_shaping import FromFile, FromScript, train
from examples.reward_pipelines.coding import composer
from examples.reward_pipelines.knight import (
    SIDE,
    SQUARES,
    KnightAction,
    KnightEnvironment,
    moves,
)
from examples.tau_chat.scripted_model import Failed, ScriptedModel
from guerdon import GenericEnvClient, HTTPEnvClient, RewardConfig, RewardPipeline, create_app
from guerdon.envs import ConfiguredEnv
from guerdon.errors import (
    EpisodeError,
    InvalidArgumentError,
    RewardConfigError,
    ServiceUnavailableError,
)
from tests.envs.client.servers import Served

pytestmark = pytest.mark.edge  # real servers and processes

ROOT = Path(__file__).parents[2]
MODULES = ["chess_shaping", "coding", "knight", "style_judge"]
SOON = 20

PROGRAMS = candidates(load_tasks()[0])


@contextlib.contextmanager
def served(factory, reward):
    """Serve an environment in this process; yield its address."""
    server = Served(create_app(factory, reward=reward))
    try:
        yield server.url
    finally:
        server.stop()


# The coding environment with its composer ------------------------------------------------------


def test_coding_demo_prints_the_rewards_of_three_submissions(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert coding.main() == 0
    rows = capsys.readouterr().out.splitlines()[::2]
    components = [row.partition("{")[2] for row in rows]
    assert [each.count(":") for each in components] == [2, 2, 3]  # efficiency only at the end
    rewards = [float(row.split()[0]) for row in rows]
    assert rewards[0] < rewards[1] < rewards[2]
    assert components[2].endswith("'efficiency': 0.5}")


def test_composer_gives_the_same_rewards_as_the_file():
    def play(environment):
        environment.reset(task=0)
        return [
            environment.step(CodeAction(program=PROGRAMS[kind]))
            for kind in ("half", "wrong", "right")
        ]

    with (
        ConfiguredEnv(lambda: CodingEnvironment(sandbox="process"), coding.REWARD) as make,
        make() as from_file,
        CodingEnvironment(sandbox="process", rubric=composer()) as from_code,
    ):
        file_results, code_results = play(from_file), play(from_code)
    for one, other in zip(file_results, code_results, strict=True):
        assert one.reward == other.reward
        assert one.metadata["reward_components"] == other.metadata["reward_components"]
    last = file_results[-1].metadata["reward_components"]
    assert (last["test_pass"], last["efficiency"]) == (1.0, 0.5)
    assert file_results[-1].reward == pytest.approx(1.0 + 0.3 * last["code_style"] + 0.2 * 0.5)


@pytest.mark.parametrize(
    ("kinds", "efficiency"),
    [(["right"], 1.0), (["wrong", "right"], 0.0), (["wrong", "wrong"], 0.0)],
    ids=["at once", "at last", "never"],
)
def test_efficiency_counts_submissions(kinds, efficiency):
    rubric = coding.Efficiency(coding.EfficiencyConfig(submissions=2))
    with CodingEnvironment(sandbox="process", max_submissions=2, rubric=rubric) as environment:
        environment.reset(task=0)
        for kind in kinds:
            observation = environment.step(CodeAction(program=PROGRAMS[kind]))
    assert observation.reward == efficiency


def test_efficiency_fails_if_submissions_differs_from_max_submissions():
    rubric = coding.Efficiency(coding.EfficiencyConfig(submissions=2))
    with CodingEnvironment(sandbox="process", rubric=rubric) as environment:
        environment.reset(task=0)
        observation = environment.step(CodeAction(program=PROGRAMS["right"]))
    assert observation.reward is None
    assert "max_submissions" in observation.metadata["reward_error"]


def test_configured_env_reports_a_wrong_key_with_its_line_and_a_suggestion(tmp_path):
    file = tmp_path / "reward.yaml"
    file.write_text(coding.REWARD.read_text().replace("{submissions: 5}", "{submission: 5}"))
    with pytest.raises(RewardConfigError) as raised:
        ConfiguredEnv(CodingEnvironment, file)
    (problem,) = raised.value.problems
    line = file.read_text().splitlines().index("    config: {submission: 5}") + 1
    assert f"reward.yaml:{line}: episode_end[0].config.submission" in problem
    assert "did you mean 'submissions'" in problem


# Shaping that a training script fades out -----------------------------------------------------


@pytest.mark.parametrize("shape", [FromFile, FromScript])
def test_train_fades_out_the_shaping(shape):
    with served(KnightEnvironment, chess_shaping.REWARD) as url:
        played = train(url, shape(), games=4)
    by_step = {each.training_step: each for each in played}
    assert [each.won for each in played] == [by_step[0].won] * 4
    assert by_step[0].rewards == by_step[200].rewards
    assert sum(by_step[1000].rewards) == by_step[1000].won
    shaped, half, none = (by_step[step].rewards for step in (0, 600, 1000))
    assert shaped > half > none
    assert half == pytest.approx([(a + b) / 2 for a, b in zip(shaped, none, strict=True)])
    assert all(len(each.fingerprints) == 1 for each in played)
    assert len(set.union(*(each.fingerprints for each in played))) == 3


def test_train_gives_the_same_rewards_from_file_and_from_script():
    found = []
    for shape in (FromFile(), FromScript()):
        with served(KnightEnvironment, chess_shaping.REWARD) as url:
            found.append([each.rewards for each in train(url, shape, games=2)])
    assert found[0] == found[1]


def test_chess_shaping_demo_prints_the_same_rewards_for_both_ways(capsys):
    assert chess_shaping.main() == 0
    one, *rows = capsys.readouterr().out.splitlines()
    other = rows.pop(4)
    assert (one, other) == ("FromFile", "FromScript")
    assert rows[:4] == rows[4:]
    assert rows[3] == "  training step  1000: mean reward 1.000, 8 games won"


def test_from_file_reports_the_step_after_another_update():
    with (
        served(KnightEnvironment, chess_shaping.REWARD) as url,
        HTTPEnvClient(url).sync() as server,
        HTTPEnvClient(url).sync() as other,
    ):
        server.get_config()
        other.update_config({"weights": {"win": 2.0}})
        FromFile()(server, 600)
        config = server.get_config()
    assert config["progress"]["training_step"] == 600
    assert config["episode_end"][0]["weight"] == 2.0


def test_post_config_during_a_game_applies_to_the_next_game():
    def rewards(client):
        return [client.step({"to": to}).reward for to in ("c2", "a1")]

    with (
        served(KnightEnvironment, chess_shaping.REWARD) as url,
        GenericEnvClient.from_url(url).sync() as client,
    ):
        seed = next(seed for seed in range(100) if "c2" in board(seed))
        client.reset(seed=seed)
        response = client.post("/config", json={"training_step": 1000})
        current = rewards(client)
        client.reset(seed=seed)
        following = rewards(client)
    assert response["status"] == "ok"
    assert response["config"]["progress"]["training_step"] == 1000
    assert current[0] > 0
    assert [*current[1:], *following] == [0.0] * 3


def test_post_config_rejects_an_outdated_if_match():
    with served(KnightEnvironment, chess_shaping.REWARD) as url, httpx.Client(base_url=url) as http:
        etag = http.get("/config").headers["etag"]
        post = {"weights": {"material": 0.25}}
        first = http.post("/config", json=post, headers={"if-match": etag})
        second = http.post("/config", json=post, headers={"if-match": etag})
        third = http.post("/config", json=post, headers={"if-match": first.headers["etag"]})
    assert [each.status_code for each in (first, second, third)] == [200, 412, 200]
    assert second.headers["etag"] == first.headers["etag"] != etag


def test_from_script_tries_again_after_a_conflict():
    class Conflicting(HTTPEnvClient):
        """Posts another update after each of the first two reads of the configuration."""

        left = 2

        async def get_config(self):
            config = await super().get_config()
            if self.left:
                self.left -= 1
                await self.post("/config", json={"weights": {"win": 1.0 + self.left}})
            return config

    with (
        served(KnightEnvironment, chess_shaping.REWARD) as url,
        Conflicting(url).sync() as server,
    ):
        FromScript()(server, 600)
        audit = server.get("/config/audit")
        config = server.get_config()
    weights = {each["name"]: each["weight"] for each in config["per_turn"] + config["episode_end"]}
    assert weights == {"material": 0.25, "win": 1.0}
    assert "schedule" not in config["per_turn"][0] or config["per_turn"][0]["schedule"] is None
    assert "chess_shaping.py" in json.dumps(audit)


# The game --------------------------------------------------------------------------------------


def board(seed):
    with ConfiguredEnv(KnightEnvironment, chess_shaping.REWARD) as make:
        return make().reset(seed=seed).pieces


def test_moves_returns_the_moves_of_a_knight():
    for square in SQUARES:
        for to in SQUARES:
            distance = abs(ord(square[0]) - ord(to[0])), abs(int(square[1]) - int(to[1]))
            assert (to in moves(square)) == (sorted(distance) == [1, 2])
    assert len(SQUARES) == SIDE**2


def test_knight_environment_rejects_invalid_moves_and_ends_after_12():
    with ConfiguredEnv(KnightEnvironment, chess_shaping.REWARD) as make:
        environment = make()
        with pytest.raises(EpisodeError):
            environment.step(KnightAction(to="c2"))
        seed = next(seed for seed in range(100) if not {"c2", "a1"} & set(board(seed)))
        environment.reset(seed=seed)
        with pytest.raises(InvalidArgumentError, match="c2, b3"):
            environment.step(KnightAction(to="c3"))
        steps = [environment.step(KnightAction(to=to)) for to in ["c2", "a1"] * 6]
        assert [each.done for each in steps] == [False] * 11 + [True]
        assert environment.state.step_count == 12
        with pytest.raises(EpisodeError):
            environment.step(KnightAction(to="c2"))


# The style judge as an MCP server --------------------------------------------------------------


@contextlib.contextmanager
def judge_served(model):
    """Serve the style judge in another process; yield its address."""
    command = [sys.executable, "-m", "examples.reward_pipelines.style_judge"]
    process = subprocess.Popen(
        [*command, model.endpoint, "m", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=SOON)
    assert (process.returncode, rest) == (0, "")


def judged_by(service):
    config = RewardConfig.from_file(style_judge.REWARD).to_dict()
    return config | {"mcp_services": {"style_judge": service}}


def judge(body):
    """Answer as a model: fail if the prompt contains FAIL, else score it."""
    prompt = body["messages"][-1]["content"]
    if "FAIL" in prompt:
        return Failed(400)
    score = 0.2 if "Score: 1.0" in prompt else 0.8
    return json.dumps({"score": score, "reasoning": "it reads well"})


def test_judged_style_scores_alike_through_mcp_and_with_a_model():
    right = PROGRAMS["right"]
    programs = [f"{right}# Score: 1.0\n", f"{right}# FAIL\n", right]

    async def tools(url):
        async with mcp.Client(url) as client:
            return (await client.list_tools()).tools

    def play(config):
        def make_environment():
            return CodingEnvironment(sandbox="process")

        with ConfiguredEnv(make_environment, config) as make, make() as environment:
            found = []
            for program in programs:
                environment.reset(task=0)
                found.append(environment.step(CodeAction(program=program)))
            return found

    with ScriptedModel(judge) as model, judge_served(model) as url:
        (tool,) = asyncio.run(tools(url))
        over_mcp = play(judged_by({"type": "mcp", "endpoint": url, "tool": "judge"}))
        direct = {"type": "openai_llm", "endpoint": model.endpoint, "model": "m"}
        without_mcp = play(
            judged_by({**direct, "prompt": style_judge.PROMPT, "returns": "verdict"})
        )
    assert tool.name == "judge"
    prompts = [body["messages"][-1]["content"] for body in model.asked]
    assert all(load_tasks()[0].prompt in text for text in prompts)
    assert all(sum(program in text for text in prompts) >= 2 for program in programs)
    assert set(tool.input_schema["required"]) == {"task", "program"}
    components = [each.metadata["reward_components"] for each in over_mcp]
    assert [each.get("code_style") for each in components] == [0.2, None, 0.8]
    assert [each.reward for each in over_mcp] == [
        pytest.approx(1.0 + 0.3 * 0.2 + 0.2), None, pytest.approx(1.0 + 0.3 * 0.8 + 0.2)
    ]  # fmt: skip
    assert "style_judge" in over_mcp[1].metadata["reward_error"]
    assert [each.reward for each in without_mcp] == [each.reward for each in over_mcp]


def test_configured_env_names_an_unavailable_service():
    with ScriptedModel([]) as model:
        endpoint = model.endpoint
    unavailable = {"type": "mcp", "endpoint": endpoint, "tool": "judge"}
    with pytest.raises(ServiceUnavailableError, match="style_judge"):
        ConfiguredEnv(CodingEnvironment, judged_by(unavailable))


def test_reward_pipeline_make_suggests_a_known_service_name():
    config = judged_by({"type": "mcp", "endpoint": "http://localhost:9/mcp"})
    config["per_turn"][1]["config"] = {"llm_service": "stile_judge"}
    with (
        RewardPipeline.of(config) as pipeline,
        pytest.raises(RewardConfigError, match="did you mean 'style_judge'"),
    ):
        pipeline.make()


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"examples.reward_pipelines.{name}")
    assert doctest.testmod(module).failed == 0
