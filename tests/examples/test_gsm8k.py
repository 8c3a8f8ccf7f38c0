import json
import subprocess
import sys

import pytest

from examples.gsm8k import reward
from examples.gsm8k.rollouts import HERE, rollouts, solutions
from guerdon import Rollout, score_rollouts

SAMPLE = HERE / "sample.jsonl"
ROOT = HERE.parents[1]


def verdicts(rubric, path):
    rows = list(rollouts(path))
    scored = score_rollouts(rubric, map(Rollout.from_row, rows))
    return [(row["is_correct"], result) for row, result in zip(rows, scored, strict=True)]


def test_sample_has_forty_problems_with_several_solutions():
    problems = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    assert len(problems) >= 40
    assert all(len([v for v in p.values() if isinstance(v, dict)]) >= 3 for p in problems)


@pytest.mark.parametrize("name", ["correct", "Solution"])
def test_reward_verdicts_agree_with_the_sample(name):
    least = {"correct": 1.0, "Solution": 0.8}[name]
    for correct, result in verdicts(getattr(reward, name)(), SAMPLE):
        assert result["is_score_valid"], result
        assert (result["score"] >= least) == correct, result


@pytest.mark.parametrize("name", ["correct", "Solution"])
def test_reward_verdicts_agree_with_the_published_ones(name):
    if solutions() == SAMPLE:
        pytest.skip("the GSM8K model solutions are missing: set GUERDON_DATA to their folder")
    least = {"correct": 1.0, "Solution": 0.8}[name]
    results = verdicts(getattr(reward, name)(), solutions())
    assert len(results) == 1600
    assert sum((result["score"] >= least) == correct for correct, result in results) == 1600


def test_as_containers_stops_at_the_same_gates_as_solution():
    for row in rollouts(SAMPLE):
        action, observation = Rollout.from_row(row).steps[0]
        solution = reward.Solution().score(action, observation)
        containers = reward.as_containers.score(action, observation)
        assert (solution["answered"].value, solution["correct"].value) == (
            containers["rubric_0"].value,
            containers["rubric_1"].value,
        )


@pytest.mark.edge
def test_gsm8k_demo_runs_on_the_sample():
    done = subprocess.run(
        [sys.executable, "-m", "examples.gsm8k.demo", str(SAMPLE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy (score ≥ 0.8)" in done.stdout
    assert "stopped by gate" in done.stdout
    assert "verdicts that agree with the published ones: 212 of 212" in done.stdout
