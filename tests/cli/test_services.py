"""--services: a reward file without services of its own, as each command opens it."""

import json

import pytest

from examples.tau_chat.scripted_model import ScriptedModel
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real files

REWARD = """\
schema_version: "1.0"
per_turn:
  - name: style
    rubric: LLMJudge
    config: {prompt_template: "Good? {action}", endpoint: style_judge}
"""

WORLD = """\
from guerdon import Action, Environment, LLMJudge, Observation, State

class Say(Action):
    content: str = "hello"

class World(Environment[Say, Observation, State]):
    after_done = "each step is an episode of its own"
    state = State()

    def __init__(self):
        super().__init__(rubric=LLMJudge("Judge: {action}", "style_judge"))

    def reset(self, seed=None):
        return Observation()

    def step(self, action):
        return self.score(action, Observation(done=True))
"""

COMMANDS = {
    "validate": ("validate", "reward.yaml"),
    "tree": ("tree", "reward.yaml"),
    "diff": ("diff", "reward.yaml", "reward.yaml", "rollouts.jsonl"),
    "check": ("check", "world.py:World"),
    "check --reward": ("check", "world.py:World", "--reward", "reward.yaml"),
}


@pytest.fixture
def run(tmp_path, rows):
    rows(["x = 1"])
    (tmp_path / "reward.yaml").write_text(REWARD)
    (tmp_path / "world.py").write_text(WORLD)
    return lambda *args: run_inside(tmp_path, *args)


@pytest.mark.parametrize("command", COMMANDS)
def test_services_are_those_of_the_judges_of_every_command(command, run, tmp_path):
    with ScriptedModel(["Score: 0.75"] * 200) as model:
        service = {"type": "openai_llm", "endpoint": model.endpoint, "model": "m"}
        (tmp_path / "services.yaml").write_text(json.dumps({"style_judge": service}))
        done = run(*COMMANDS[command], "--services", "services.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(*COMMANDS[command])
    assert done.returncode != 0
    assert "style_judge" in done.stdout + done.stderr


def test_services_without_that_of_a_reward_file_name_it(run, tmp_path):
    (tmp_path / "services.yaml").write_text("other: {type: mcp, endpoint: http://localhost:1/mcp}")
    done = run("validate", "reward.yaml", "--services", "services.yaml")
    assert done.returncode == 1
    assert "reward.yaml:5: per_turn[0].config.endpoint: mcp_services has no service" in done.stdout
    done = run("validate", "reward.yaml", "--services", "missing.yaml")
    assert done.returncode == 2
