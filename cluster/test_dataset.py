"""`score_dataset` on Ray Data: the rows of ``guerdon score``, by id."""

import json

import pytest
import ray

from cluster.conftest import rollout
from guerdon import NumericAnswer, RewardConfig, RewardPipeline, Rubric, reward_function
from guerdon.errors import InvalidArgumentError
from guerdon.integrations.ray import score_dataset
from guerdon.rollouts import CreditSettings, RubricScorer, ScoringJob

pytestmark = pytest.mark.usefixtures("driver")


def by_id(ds):
    return {row["id"]: row for row in ds.take_all()}


def dataset(count=200):
    return ray.data.from_items([rollout(number) for number in range(count)]).repartition(4)


def rows_of_guerdon_score(tmp_path, path, **options):
    out = tmp_path / "scored.jsonl"
    ScoringJob(path, "guerdon:NumericAnswer", str(out), **options).run()
    return {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}


@pytest.mark.parametrize("credit", [None, CreditSettings("gigpo")], ids=["", "credit"])
def test_score_dataset_adds_the_columns_of_guerdon_score(tmp_path, rollouts, credit):
    expected = rows_of_guerdon_score(tmp_path, rollouts(200), credit=credit)
    scored = by_id(score_dataset(dataset(), "guerdon:NumericAnswer", credit=credit, workers=2))
    assert scored.keys() == expected.keys()
    for id, row in expected.items():
        found = scored[id]
        assert found["messages"][1]["role"] == "assistant"
        for name in ("score", "is_score_valid", "step_rewards", "fingerprint", "group"):
            assert found[name] == row[name], name
        assert dict(found["components"]) == row["components"]
        assert json.loads(found["steps"] or "[]") == row.get("steps", [])
        assert (found["error"] is None) == (row["error"] is None)


def test_score_dataset_has_null_and_the_reason_for_a_score_that_failed():
    scored = by_id(score_dataset(dataset(20), NumericAnswer(), workers=2))
    assert (scored["q9"]["score"], scored["q9"]["is_score_valid"]) == (None, False)
    assert "MissingInputError" in scored["q9"]["error"]
    assert scored["q8"]["score"] is not None


def test_score_dataset_takes_a_rubric_of_a_script():
    class Local(Rubric):
        def forward(self, action, observation):
            return float(len(action.content))

    local = Local()
    scored = by_id(score_dataset(dataset(8), local, workers=2))
    assert {row["score"] for row in scored.values()} == {10.0}
    assert {row["fingerprint"] for row in scored.values()} == {RubricScorer(local).fingerprint}


def test_score_dataset_takes_a_pipeline():
    entry = {"name": "right", "rubric": "NumericAnswer", "weight": 0.5}
    config = RewardConfig.from_dict({"schema_version": "1.0", "per_turn": [entry]})
    scored = by_id(score_dataset(dataset(8), RewardPipeline(config), workers=2))
    assert scored["q2"]["score"] == 0.5 * 1 + 0.5 * 0
    assert dict(scored["q2"]["components"])["right/mean"] == 0.5


@reward_function(mode="batch")
def ranked(rollouts_messages, ground_truths):
    """The share of the group."""
    return [float(len(rollouts_messages))] * len(rollouts_messages)


def test_score_dataset_scores_groups_together_and_rollouts_without_a_group_alone():
    rows = [rollout(number) for number in range(8)]
    rows += [rollout(number) | {"group": None} for number in range(8, 12)]
    scored = by_id(score_dataset(ray.data.from_items(rows).repartition(3), ranked, workers=2))
    assert {scored[f"q{number}"]["score"] for number in range(8)} == {4.0}
    assert {scored[f"q{number}"]["score"] for number in range(8, 12)} == {1.0}


def test_score_dataset_requires_the_column_of_the_group():
    rows = [{"messages": [{"role": "assistant", "content": "42"}]}]
    with pytest.raises(InvalidArgumentError, match="no column 'group'"):
        score_dataset(ray.data.from_items(rows), ranked)


def test_score_dataset_reads_and_writes_parquet(tmp_path):
    dataset(40).write_parquet(str(tmp_path / "rollouts"))
    scored = score_dataset(
        ray.data.read_parquet(str(tmp_path / "rollouts")), NumericAnswer(), workers=2
    )
    scored.write_parquet(str(tmp_path / "scored"))
    stored = by_id(ray.data.read_parquet(str(tmp_path / "scored")))
    assert len(stored) == 40
    assert stored["q2"]["score"] == 1.0
    assert stored["q9"]["score"] is None
