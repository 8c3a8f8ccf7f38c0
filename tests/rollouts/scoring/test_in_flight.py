"""How many rollouts are scored at the same time, counted by a model that holds its replies."""

import json
import threading

import pytest

from examples.tau_chat.scripted_model import Failed, Replied, ScriptedModel
from guerdon.rollouts import ComparisonJob, ScoringJob
from guerdon.rubrics.copies import ROLLOUTS

ROLLOUTS_OF_A_FILE = 24

REWARDS = """
    import asyncio
    from guerdon import (
        Gate, Guarded, LLMJudge, NumericAnswer, RegexMatch, Rubric, Sequential, TrajectoryRubric,
        WeightedSum, reward_function,
    )
    from guerdon.services import ChatModel

    model = ChatModel({endpoint!r}, "m", retries=0)

    def judge(*more):
        return LLMJudge("Rate: {{action.content}} {{action.turn}}", model, *more)

    class ByHand(Rubric):
        def __init__(self):
            super().__init__()
            self.judge = judge()
        def forward(self, action, observation):
            return self.judge(action, observation) / 2

    class Async(Rubric):
        async def forward(self, action, observation):
            reply = await model.complete([{{"role": "user", "content": action.content}}])
            return float("0.5" in reply.text)

    class Episode(TrajectoryRubric):
        def __init__(self):
            super().__init__()
            self.judge = judge()
        def score_trajectory(self, trajectory):
            return 1.0
        def compute_step_rewards(self):
            return [1.0] * len(self._trajectory)

    plain = judge()
    gate = Gate(judge(), 0.1)
    sequential = Sequential(RegexMatch("a"), judge())
    guarded = Guarded(judge(), timeout=60.0)
    weighted = WeightedSum([judge(), Episode(), RegexMatch("a")], [1.0, 0.5, 0.5])
    by_hand = WeightedSum([ByHand(), judge()], [1.0, 0.0])
    asynchronous = Async()

    @reward_function
    async def function(messages):
        return float("0.5" in (await model.complete(messages)).text)

    @reward_function
    async def groups(rollouts_messages):
        replies = [await model.complete(messages) for messages in rollouts_messages]
        return [float("0.5" in reply.text) for reply in replies]

    fast = RegexMatch("a")
"""

KINDS = (
    "plain", "gate", "sequential", "guarded", "weighted", "by_hand", "asynchronous", "function",
    "groups",
)  # fmt: skip


@pytest.fixture
def model():
    """A model that holds its replies, or answers with its attribute `answer`."""
    with ScriptedModel(lambda body: model.answer(body)) as model:
        model.answer = lambda body: Replied('{"score": 0.5}', is_held=True)
        yield model


@pytest.fixture
def rewards(model, reward):
    """The spec of a reward that asks the model."""
    spec = reward(REWARDS.format(endpoint=model.endpoint))
    return lambda name: spec.replace(":reward", f":{name}")


@pytest.fixture
def rollouts(row, write_rows):
    def rollouts(count=ROLLOUTS_OF_A_FILE, turns=1):
        return write_rows([row(*[f"a{i}"] * turns, id=i) for i in range(count)])

    return rollouts


def run(job):
    """Run a job in a thread; returns what waits for its report."""
    reports = []
    thread = threading.Thread(target=lambda: reports.append(job.run()))
    thread.start()

    def report():
        thread.join(60)
        return reports[0]

    return report


@pytest.mark.parametrize("kind", KINDS)
def test_scoring_job_scores_rollouts_concurrently(model, rewards, rollouts, tmp_path, kind):
    out = tmp_path / "scored.jsonl"
    report = run(ScoringJob(rollouts(), rewards(kind), str(out)))
    model.wait_for(lambda model: len(model.asked) >= ROLLOUTS_OF_A_FILE)
    model.release()
    assert report().scored == ROLLOUTS_OF_A_FILE
    assert model.at_once >= ROLLOUTS_OF_A_FILE
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["id"] for row in rows] == list(range(ROLLOUTS_OF_A_FILE))
    assert all(row["is_score_valid"] for row in rows)


@pytest.mark.parametrize(("kind", "turns"), [("plain", 1), ("plain", 3), ("asynchronous", 2)])
def test_scoring_job_scores_up_to_32_rollouts_at_once(model, rewards, rollouts, kind, turns):
    report = run(ScoringJob(rollouts(100, turns), rewards(kind)))
    model.wait_for(lambda model: len(model.asked) == ROLLOUTS)
    model.release()
    assert report().scored == 100
    assert model.at_once == ROLLOUTS


def test_scoring_job_with_credit_scores_groups_concurrently(model, rewards, row, write_rows):
    from guerdon.rollouts import CreditSettings

    file = write_rows([row(f"a{i}", id=i, group=i // 4) for i in range(24)])
    report = run(ScoringJob(file, rewards("plain"), credit=CreditSettings("grpo")))
    model.wait_for(lambda model: len(model.asked) == 24)
    model.release()
    assert report().scored == 24


@pytest.mark.edge  # its worker is a process
def test_scoring_job_workers_score_rollouts_concurrently(model, rewards, rollouts):
    report = run(ScoringJob(rollouts(), rewards("plain"), workers=2))
    model.wait_for(lambda model: len(model.asked) == ROLLOUTS_OF_A_FILE)
    model.release()
    assert report().scored == ROLLOUTS_OF_A_FILE


@pytest.mark.parametrize(("before", "after"), [("plain", "gate"), ("fast", "plain")])
def test_comparison_job_scores_with_both_rewards_concurrently(
    model, rewards, rollouts, before, after
):
    expected = ROLLOUTS_OF_A_FILE * (1 + (before != "fast"))
    report = run(ComparisonJob(rewards(before), rewards(after), rollouts()))
    model.wait_for(lambda model: len(model.asked) == expected)
    model.release()
    assert report().comparison.movement.both == ROLLOUTS_OF_A_FILE
    assert model.at_once == expected


def test_scoring_job_writes_what_is_finished_while_one_waits(rewards, rollouts, model, tmp_path):
    """A slow row holds up no other; the rows before it are in the file."""
    model.answer = lambda body: Replied(
        '{"score": 0.5}', is_held="\na5\n" in body["messages"][1]["content"]
    )
    out = tmp_path / "scored.jsonl"
    report = run(ScoringJob(rollouts(100), rewards("plain"), str(out)))
    model.wait_for(lambda model: len(model.asked) == 100)
    model.release()
    assert report().scored == 100
    assert model.at_once <= ROLLOUTS
    assert [json.loads(line)["id"] for line in out.read_bytes().splitlines()] == list(range(100))


# A service that is down


def down_after(count, error="gone"):
    asked = []

    def answer(body):
        asked.append(body)
        return '{"score": 0.5}' if len(asked) <= count else Failed(503, text=error)

    return answer


@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.edge)])
def test_scoring_job_stops_when_a_service_is_down_and_resumes(
    model, rewards, rollouts, tmp_path, workers
):
    out = tmp_path / "scored.jsonl"
    job = ScoringJob(rollouts(60), rewards("plain"), str(out), workers=workers)
    model.answer = down_after(25)
    report = job.run()
    assert "10 rows in a row failed with ServiceUnavailableError: m at http://" in report.stopped
    assert "answered 503" in report.stopped
    assert "--resume" in report.stopped
    assert "--keep-going" in report.stopped
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert len(rows) == report.scored <= 50
    assert not rows or rows[-1]["is_score_valid"]  # those that fail in a row are left out
    model.answer = lambda body: '{"score": 0.5}'
    again = ScoringJob(rollouts(60), rewards("plain"), str(out), resume=True).run()
    assert (again.stopped, again.resumed, again.summary.rows) == (None, len(rows), 60)
    ids = [json.loads(line)["id"] for line in out.read_bytes().splitlines()]
    assert ids == list(range(60))


def test_scoring_job_keep_going_scores_every_row(model, rewards, rollouts, tmp_path):
    out = tmp_path / "scored.jsonl"
    model.answer = down_after(0)
    report = ScoringJob(rollouts(40), rewards("plain"), str(out), keep_going=True).run()
    assert (report.stopped, report.scored, report.summary.failed) == (None, 40, 40)


def test_scoring_job_keeps_fewer_failures_than_an_outage(model, rewards, rollouts, tmp_path):
    out = tmp_path / "scored.jsonl"
    model.answer = lambda body: (
        '{"score": 0.5}' if "\na1\n" in body["messages"][1]["content"] else Failed(503)
    )
    report = ScoringJob(rollouts(9), rewards("plain"), str(out)).run()
    assert (report.stopped, report.scored, report.summary.failed) == (None, 9, 8)


def test_scoring_job_goes_on_if_a_policy_deals_with_the_failures(model, reward, rollouts):
    model.answer = down_after(0)
    spec = reward(
        "from guerdon import Guarded, LLMJudge\nfrom guerdon.services import ChatModel\n"
        f"model = ChatModel({model.endpoint!r}, 'm', retries=0)\n"
        "reward = Guarded(LLMJudge('Rate: {action.content}', model), on_error='zero')\n"
    )
    report = ScoringJob(rollouts(20), spec).run()
    assert (report.stopped, report.summary.zeros) == (None, 20)


def test_comparison_job_stops_when_a_service_is_down_and_compares_the_rows_before(
    model, rewards, rollouts
):
    model.answer = down_after(25)
    report = ComparisonJob(rewards("fast"), rewards("plain"), rollouts(60)).run()
    assert "10 rows in a row failed with ServiceUnavailableError" in report.stopped
    assert report.interrupted
    assert report.comparison.rows <= 50
    assert (
        ComparisonJob(rewards("fast"), rewards("plain"), rollouts(30), keep_going=True)
        .run()
        .comparison.failed
        == 30
    )
