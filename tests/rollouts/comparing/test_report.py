"""compare_rewards: two rewards in code, on the same rollouts."""

import json

import pytest

from guerdon.errors import RolloutError
from guerdon.rollouts.comparing.comparison import compare_rewards
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.functions.function import reward_function
from guerdon.types.rollout import Rollout


def rollouts(*texts, group="g", **columns):
    return [
        Rollout.from_row(
            {"id": text, "group": group, **columns,
             "messages": [{"role": "assistant", "content": text}]}
        )
        for text in texts
    ]  # fmt: skip


@as_rubric
def number(action, observation):
    return float(action.content)


@as_rubric
def negated(action, observation):
    return -float(action.content)


def test_compare_rewards_compares_two_rubrics():
    report = compare_rewards(number, negated, iter(rollouts("1", "2", "x")))
    found = report.comparison
    assert (found.rows, found.neither, found.groups.pairs.flipped) == (3, 1, 1)
    assert [(move.id, move.difference) for move in found.moved] == [("2", -4.0), ("1", -2.0)]
    assert report.fingerprint_before != report.fingerprint_after
    assert len(report.changes) == 1
    assert not report.is_unsteady


def test_compare_rewards_of_a_reward_with_itself_moves_nothing():
    report = compare_rewards(number, number, rollouts("1", "2", "x"))
    assert (report.changes, report.comparison.moved) == ((), ())
    assert report.comparison.movement.unmoved == 2
    assert report.fingerprint_before == report.fingerprint_after
    assert not report.is_unsteady


def test_compare_rewards_reports_an_unsteady_reward():
    given = iter(range(100))
    restless = as_rubric(lambda action, observation: float(next(given)))
    report = compare_rewards(restless, restless, rollouts("a", "b"))
    assert report.is_unsteady
    assert report.to_dict()["unsteady"] is True


def test_compare_rewards_isolates_changes_to_rollouts():
    @as_rubric
    def spoils(action, observation):
        seen = len(observation.metadata["tags"])
        observation.metadata["tags"].append("seen")
        return float(seen)

    report = compare_rewards(spoils, spoils, rollouts("a", "b", tags=[]))
    assert report.comparison.movement.before.value == report.comparison.movement.after.value


def test_compare_rewards_compares_a_rubric_with_a_batch_function():
    @reward_function(mode="batch")
    def ranked(rollouts_messages):
        texts = [messages[-1].text for messages in rollouts_messages]
        return [float(sorted(texts).index(text)) for text in texts]

    found = compare_rewards(number, ranked, rollouts("3", "1", "2")).comparison
    assert (found.movement.both, found.movement.difference.value) == (3, -1.0)
    assert found.groups.mean_tau == 1.0
    apart = rollouts("1", group="g") + rollouts("2", group="h") + rollouts("3", group="g")
    with pytest.raises(RolloutError, match='group "g" is split'):
        compare_rewards(number, ranked, apart)


def test_compare_rewards_skips_failed_episodes_unless_score_failed():
    failed = rollouts("1", ended="error", error="it died")
    assert compare_rewards(number, negated, failed).comparison.neither == 1
    asked = compare_rewards(number, negated, failed, score_failed=True).comparison
    assert (asked.neither, asked.movement.difference.value) == (0, -2.0)


def test_comparison_report_to_dict_is_json():
    report = compare_rewards(number, negated, rollouts("1", "x"), top=1)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["rows"] == 2
    assert data["changes"][0]["what"] == report.changes[0].what
    assert set(data["fingerprints"]) == {"before", "after"}
