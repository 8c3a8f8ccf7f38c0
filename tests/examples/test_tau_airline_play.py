"""Playing tau-bench's airline with models behind endpoints: pass^k, and the file of rollouts."""

import json
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.tau_airline.play import main, pass_hat_k, reward_of
from examples.tau_airline.reward import airline_reward
from examples.tau_chat.scripted_model import Failed, Replied, ScriptedModel
from guerdon import RLDataAligner, Rollout, score_rollouts
from guerdon.errors import InvalidArgumentError
from guerdon.rubrics import as_reward_function
from tests.examples.tau_airline import CANCEL, DATA, LOOK, TASKS, write_data

BYE = "Thank you. ###STOP###"

# pass^k -------------------------------------------------------------------------------------------


def test_pass_hat_k_is_the_unbiased_estimate_of_the_paper():
    rewards = [[1.0, 1.0, 0.0, 0.0], [1.0] * 4, [0.0] * 4]
    assert pass_hat_k(rewards, 1) == pytest.approx((0.5 + 1 + 0) / 3)
    assert pass_hat_k(rewards, 2) == pytest.approx((1 / 6 + 1 + 0) / 3)
    assert pass_hat_k(rewards, 4) == pytest.approx(1 / 3)


def test_pass_hat_k_leaves_out_tasks_with_fewer_trials():
    assert pass_hat_k([[1.0], [1.0, 0.0]], 2) == 0.0
    assert pass_hat_k([[1.0]], 2) is None
    assert pass_hat_k([], 1) is None
    with pytest.raises(InvalidArgumentError, match="`k` must be"):
        pass_hat_k([[1.0]], 0)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_hat_k_is_the_share_of_subsets_that_pass(trials, k):
    subsets = [
        all(trials[place] for place in range(len(trials)) if chosen >> place & 1)
        for chosen in range(2 ** len(trials))
        if chosen.bit_count() == k
    ]
    found = pass_hat_k([trials], k)
    assert len(subsets) == comb(len(trials), k)
    assert found == (pytest.approx(sum(subsets) / len(subsets)) if subsets else None)


# The command --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(write_data(tmp_path / "data", tasks=TASKS)))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def calling(name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return Replied(
        choice={
            "message": {
                "content": None,
                "tool_calls": [{"id": "c0", "type": "function", "function": function}],
            }
        }
    )


def agent(body):
    """Look up, cancel, say goodbye: the right thing in task 0 only."""
    turns = sum(each["role"] == "assistant" for each in body["messages"])
    return [calling(*LOOK), calling(*CANCEL), "It is done."][turns]


def user(body):
    return "Hello." if len(body["messages"]) == 2 else BYE


class Play:
    """Runs the command with scripted models."""

    def __init__(self, tmp_path, capsys):
        self.out = tmp_path / "rollouts.jsonl"
        self._capsys = capsys

    def __call__(self, *options, agent=agent, user=user):
        with ScriptedModel({"a": agent, "u": user}) as model:
            models = ["--endpoint", model.endpoint, "--model", "a", "--user-model", "u"]
            self.code = main([*models, "--out", str(self.out), *options])
        self.asked, self.at_once = model.asked, model.at_once
        self.printed = self._capsys.readouterr()
        self.lines = [" ".join(line.split()) for line in self.printed.out.splitlines()]
        return self

    @property
    def rows(self):
        return [json.loads(line) for line in self.out.read_bytes().splitlines()]


@pytest.fixture
def play(tmp_path, capsys):
    return Play(tmp_path, capsys)


@pytest.mark.edge
def test_play_prints_pass_hat_k_and_a_table_and_writes_rollouts(play):
    play("--trials", "2")
    assert play.code == 0
    assert [(row["id"], row["group"], row["trial"]) for row in play.rows] == [
        (f"{task}-{trial}", task, trial) for task in range(3) for trial in range(2)
    ]
    assert [reward_of(row) for row in play.rows] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert {row["outcome"] for row in play.rows} == {"user"}
    assert "0 1 1 2 0 0 0 2 0 0" in play.lines
    assert "1 0 0 0 2 0 0 2 2 2" in play.lines
    assert "pass^1: 0.333" in play.lines
    assert "pass^2: 0.333" in play.lines
    assert "episodes: 6, unscored: 0" in play.lines


@pytest.mark.edge
def test_play_writes_rollouts_that_are_scored_and_aligned_as_they_were_played(play):
    play("--trials", "2")
    rollouts = [Rollout.from_row(row) for row in play.rows]
    reward = airline_reward(DATA)
    scored = list(score_rollouts(reward, rollouts))
    assert [row["score"] for row in scored] == [reward_of(row) for row in play.rows]
    assert [row["step_rewards"] for row in scored] == [row["env_rewards"] for row in play.rows]
    function = as_reward_function(reward)
    results = [function.evaluate(each.messages, None, dict(each.columns)) for each in rollouts]
    steps = {each.id: each.to_step_data() for each in rollouts}
    batch = RLDataAligner(strict=True).align_data_for_rl_processing(results, steps, list(steps))
    assert batch.final_scores == [reward_of(row) for row in play.rows]
    assert [each.group for each in batch] == [0, 0, 1, 1, 2, 2]


@pytest.mark.edge
def test_play_leaves_unscored_episodes_out_and_plays_them_again(play):
    asked = []

    def failing(body):
        asked.append(body)
        return Failed(400) if len(asked) in (2, 3) else user(body)

    play("--trials", "2", "--tasks", "0", "--concurrency", "1", user=failing)
    assert play.code == 1
    assert [reward_of(row) for row in play.rows] == [None, None]
    assert "EnvError: the user's model failed" in play.rows[0]["error"]
    assert any(line.startswith("0 – – ") for line in play.lines)
    assert "pass^1: unknown without tasks 0, which have fewer scored episodes" in play.lines
    assert "episodes: 2, unscored: 2" in play.lines
    assert "0-0: unscored: " in play.printed.err
    play("--trials", "2", "--tasks", "0")
    assert (play.code, [reward_of(row) for row in play.rows]) == (0, [1.0, 1.0])


@pytest.mark.edge
def test_play_of_a_failing_agent_is_unscored(play):
    play("--tasks", "1", "--trials", "1", agent=lambda body: Failed(400))
    assert (play.code, reward_of(play.rows[0])) == (1, None)
    assert "PolicyError" in play.rows[0]["error"]


@pytest.mark.edge
def test_play_resumes_and_plays_only_what_is_missing(play):
    play("--trials", "1", "--tasks", "0,2")
    before = play.rows
    with play.out.open("a") as file:
        file.write('{"id": "1-')  # an earlier run ended while it wrote this
    play("--trials", "2", "--tasks", "0-1")
    played = [line.partition(":")[0] for line in play.printed.err.splitlines()]
    assert sorted(played) == ["0-1", "1-0", "1-1"]
    assert [row["id"] for row in play.rows] == ["0-0", "0-1", "1-0", "1-1", "2-0"]
    assert [play.rows[0], play.rows[-1]] == before
    assert "episodes: 4, unscored: 0" in play.lines
    play("--trials", "2", "--tasks", "0-1")
    assert (play.asked, play.printed.err) == ([], "")


@pytest.mark.edge
def test_play_resumes_a_file_whose_texts_have_unicode_line_separators(play):
    separated = "Hello.\u2028I have\x85a question."
    play("--trials", "1", user=lambda body: separated if len(body["messages"]) == 2 else BYE)
    before = play.rows
    assert [row["messages"][1]["content"] for row in before] == [separated] * 3
    play("--trials", "1")
    assert (play.rows, play.asked) == (before, [])


@pytest.mark.edge
def test_play_has_at_most_so_many_episodes_at_once(play):
    play("--trials", "4", "--concurrency", "2")
    assert len(play.rows) == 12
    assert play.at_once <= 2


@pytest.mark.edge
def test_play_ends_an_episode_after_max_turns(play):
    play("--tasks", "0", "--trials", "1", "--max-turns", "2")
    [row] = play.rows
    assert (row["ended"], row["outcome"], reward_of(row)) == ("done", "max_turns", 0.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"model": "a", "user_model": "other"}, "line 1: it must be an episode of"),
        ({"model": "a", "user_model": "u"}, "line 1: it must be an episode of"),
        ([], "line 1: it must be an episode of"),
        ("no JSON", "line 1: it must be an episode of"),
    ],
    ids=range(4),
)
def test_play_refuses_a_file_of_something_else(play, line, message):
    text = line if isinstance(line, str) else json.dumps(line)
    play.out.write_text(f"{text}\n")
    play()
    assert (play.code, play.out.read_text()) == (2, f"{text}\n")
    assert message in play.printed.err


def test_play_refuses_tasks_that_do_not_exist(play, tmp_path, monkeypatch):
    play("--tasks", "1-3")
    assert (play.code, play.printed.err) == (2, "error: --tasks: the data has 3 tasks\n")
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(tmp_path / "nowhere"))
    play()
    assert play.code == 2
    assert "no tau-bench airline data" in play.printed.err


@pytest.mark.parametrize(
    "options", [("--trials", "0"), ("--tasks", "a"), ("--concurrency", "x")], ids=range(3)
)
def test_play_refuses_invalid_options(play, options, capsys):
    with pytest.raises(SystemExit):
        play(*options)
    assert options[0] in capsys.readouterr().err


@pytest.mark.edge
def test_play_sends_each_endpoint_its_own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", "k1")
    monkeypatch.setenv("USER_KEY", "k2")
    with ScriptedModel(agent) as first, ScriptedModel(user) as second:
        options = ["--endpoint", first.endpoint.removesuffix("/v1"), "--model", "a"]
        options += ["--user-endpoint", second.endpoint, "--key-env", "AGENT_KEY"]
        options += ["--user-key-env", "USER_KEY", "--tasks", "0", "--trials", "1"]
        assert main([*options, "--out", str(tmp_path / "out.jsonl")]) == 0
    assert {each["authorization"] for each in first.headers} == {"Bearer k1"}
    assert {each["authorization"] for each in second.headers} == {"Bearer k2"}
