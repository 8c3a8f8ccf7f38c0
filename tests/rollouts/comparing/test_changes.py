"""What changed between two rewards: in their files, their trees and their code."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import LengthBounds, RegexMatch, Rubric, RubricComposer, Sequential, WeightedSum
from guerdon.config.schema import RewardConfig
from guerdon.rollouts.comparing.changes import (
    RewardChange,
    changes_of_code,
    changes_of_configs,
    changes_of_rewards,
)
from guerdon.rubrics.functions.function import RewardFunction

POLITE = {"name": "polite", "rubric": "RegexMatch", "weight": 0.5, "config": {"pattern": "please"}}
BRIEF = {"name": "brief", "rubric": "LengthBounds", "config": {"minimum": 1, "maximum": 60}}
STEPS = {"piecewise": [[0, 1.0], [1000, 0.0]]}


def config(per_turn=(), episode_end=(), **others):
    return RewardConfig.from_dict(
        {
            "schema_version": "1.0",
            "per_turn": list(per_turn),
            "episode_end": list(episode_end),
            **others,
        }
    )


def texts(before, after):
    return [str(change) for change in changes_of_configs(before, after)]


class Graded(Rubric):
    """A grade, from a table."""

    score_range = (0.0, 1.0)

    def __init__(self, table, limit=3):
        super().__init__()
        self.table, self.limit = table, limit

    def forward(self, action, observation):
        return self.table.get(action.content, 0.0)


def constant(value):
    """A function whose code is the same for every value that it returns."""

    def score(action, observation):
        return value

    return score


# Files


def test_changes_of_configs_names_weights_schedules_and_settings():
    after = {**POLITE, "weight": -1.0, "config": {"pattern": "thanks"}, "schedule": STEPS}
    assert texts(config([POLITE]), config([after])) == [
        "per_turn.polite.weight: 0.5 → -1.0",
        'per_turn.polite.schedule: added, {"piecewise": [[0, 1.0], [1000, 0.0]], "by": "episode"}',
        "per_turn.polite.config.pattern: 'please' → 'thanks'",
    ]


def test_changes_of_configs_shows_both_schedules():
    before, after = ({**POLITE, "schedule": {"piecewise": [[0, 1], [end, 0]]}} for end in (10, 20))
    [change] = changes_of_configs(config([before]), config([after]))
    assert (change.what, change.where) == ("changed", "per_turn.polite.schedule.piecewise")
    assert (change.before, change.after) == ([[0, 1.0], [10, 0.0]], [[0, 1.0], [20, 0.0]])


def test_changes_of_configs_lists_added_and_removed_entries():
    added, removed = config([POLITE]), config([], [BRIEF])
    assert texts(removed, added) == [
        'episode_end.brief: removed, {"rubric": "LengthBounds", "weight": 1.0, '
        '"config": {"minimum": 1, "maximum": 60}}',
        'per_turn.polite: added, {"rubric": "RegexMatch", "weight": 0.5, '
        '"config": {"pattern": "please"}}',
    ]


def test_changes_of_configs_lists_an_entry_that_moved():
    found = changes_of_configs(config([POLITE]), config([], [{**POLITE, "weight": 0.7}]))
    assert found == [
        RewardChange("moved", "polite", "per_turn", "episode_end"),
        RewardChange("changed", "episode_end.polite.weight", 0.5, 0.7),
    ]


def test_changes_of_configs_ignores_the_order_of_entries():
    assert texts(config([POLITE, BRIEF]), config([BRIEF, POLITE])) == []


def test_changes_of_configs_lists_another_rubric_under_the_same_name():
    after = {**POLITE, "rubric": "ExactMatch", "config": {}}
    assert texts(config([POLITE]), config([after])) == [
        "per_turn.polite.rubric: 'RegexMatch' → 'ExactMatch'",
        "per_turn.polite.config.pattern: removed, 'please'",
    ]


def test_changes_of_configs_lists_changes_beside_the_entries():
    judge = {"type": "openai_llm", "endpoint": "http://localhost:8000", "model": "one"}
    before = config([POLITE], mcp_services={"judge": judge})
    after = config([POLITE], normalize=False, mcp_services={"judge": {**judge, "model": "two"}})
    assert texts(before, after) == [
        "mcp_services.judge.model: 'one' → 'two'",
        "normalize: true → false",
    ]
    assert [change.what for change in changes_of_configs(config([POLITE]), before)] == ["added"]


def test_changes_of_configs_never_shows_private_values():
    secret = {**POLITE, "private": ["pattern"]}
    other = {**POLITE, "config": {"pattern": "answer 42"}, "private": ["pattern"]}
    for before, after in [(secret, other), (POLITE, other), (other, POLITE)]:
        found = changes_of_configs(config([before]), config([after]))
        assert "per_turn.polite.config.pattern" in [change.where for change in found]
        assert "42" not in repr(found)
        assert "please" not in repr(found)
    assert "42" not in repr(changes_of_configs(config([BRIEF]), config([other])))
    assert "42" not in repr(changes_of_configs(config([other]), config([BRIEF])))


weights = st.integers(-1000, 1000).map(lambda value: value / 100)
entries = st.dictionaries(st.sampled_from("abcd"), st.tuples(weights, st.booleans()), min_size=1)


def drawn(found):
    made = {
        name: {"name": name, "rubric": "RegexMatch", "weight": weight, "config": {"pattern": "x"}}
        for name, (weight, _) in found.items()
    }
    per_turn = [made[name] for name, (_, at_end) in found.items() if not at_end]
    return config(per_turn, [made[name] for name, (_, at_end) in found.items() if at_end])


@given(entries, entries)
def test_changes_of_configs_are_mirrored(one, other):
    there = changes_of_configs(drawn(one), drawn(other))
    back = changes_of_configs(drawn(other), drawn(one))
    opposite = {"added": "removed", "removed": "added"}
    mirrored = {
        (opposite.get(each.what, each.what), repr(each.after), repr(each.before)) for each in back
    }
    assert {(each.what, repr(each.before), repr(each.after)) for each in there} == mirrored
    assert (there == []) == (one == other)


# Trees


def test_changes_of_rewards_of_equal_trees_is_empty():
    made = [WeightedSum([LengthBounds(1, 60), RegexMatch("please")], [1.0, 0.5]) for _ in "ab"]
    assert changes_of_rewards(*made) == []


def test_changes_of_rewards_names_settings_and_weights_by_path():
    before = Sequential(WeightedSum([LengthBounds(1, 60)], [1.0]))
    after = Sequential(WeightedSum([LengthBounds(2, 60)], [0.5]))
    assert [str(change) for change in changes_of_rewards(before, after)] == [
        "rubric_0.rubric_0.weight: 1.0 → 0.5",
        "rubric_0.rubric_0.minimum: 1 → 2",
    ]


def test_changes_of_rewards_lists_added_removed_and_replaced_rubrics():
    before = WeightedSum([LengthBounds(1, 60), RegexMatch("x")], [1.0, 1.0])
    after = WeightedSum([RegexMatch("x")], [1.0])
    assert changes_of_rewards(before, after) == [
        RewardChange("changed", "rubric_0", "LengthBounds", "RegexMatch"),
        RewardChange("removed", "rubric_1", {"rubric": "RegexMatch", "weight": 1.0}),
    ]
    assert changes_of_rewards(after, before)[1].what == "added"


def test_changes_of_rewards_shows_when_components_are_due():
    made = [
        RubricComposer({"a": RegexMatch("x"), "b": RegexMatch("y")}, {"a": 1.0, "b": 1.0},
                       episode_end=at_end) for at_end in ([], ["b"])
    ]  # fmt: skip
    assert [str(change) for change in changes_of_rewards(*made)] == [
        "b.depends_on: null → 'due at the end of the episode'"
    ]


def test_changes_of_rewards_reports_code_at_the_deepest_rubric():
    made = [Sequential(WeightedSum([constant(value), RegexMatch("x")], [1.0, 1.0]))
            for value in (0.0, 1.0)]  # fmt: skip
    [change] = changes_of_rewards(*made)
    assert (change.what, change.where) == ("code", "rubric_0.rubric_0")
    assert change.before != change.after
    both = [WeightedSum([constant(value)], [value]) for value in (0.0, 1.0)]
    assert [change.where for change in changes_of_rewards(*both)] == ["rubric_0.weight"]


def test_changes_of_rewards_reports_non_json_state_as_code():
    before, after = Graded({"a": {1}}), Graded({"a": {2}})
    assert [change.what for change in changes_of_rewards(before, after)] == ["code"]
    assert changes_of_rewards(before, Graded({"a": {1}}, limit=4)) == [
        RewardChange("changed", "limit", 3, 4)
    ]


def test_changes_of_rewards_distinguishes_true_from_one():
    before, after = Graded({}, limit=1), Graded({}, limit=True)
    assert [str(change) for change in changes_of_rewards(before, after)] == ["limit: 1 → true"]


def test_changes_of_rewards_distinguishes_values_like_fingerprints():
    before, after = Graded({"a": [1]}), Graded({"a": [1.0]})
    assert [str(change) for change in changes_of_rewards(before, after)] == ["table.a: [1] → [1.0]"]


def test_changes_of_rewards_lists_a_changed_range():
    wider = Graded({})
    wider.score_range = (0.0, 2.0)
    assert [str(change) for change in changes_of_rewards(Graded({}), wider)] == [
        "score_range: [0.0, 1.0] → [0.0, 2.0]"
    ]


def test_changes_of_rewards_compares_reward_functions():
    def answered(messages):
        return 1.0

    def politely(messages):
        return 0.5

    first, second = RewardFunction(answered), RewardFunction(politely)
    assert changes_of_rewards(first, first) == []
    [change] = changes_of_rewards(first, second)
    assert str(change) == (
        "the reward: 'the pointwise reward function answered' → "
        "'the pointwise reward function politely'"
    )
    second.__name__ = "answered"
    [change] = changes_of_rewards(first, second)
    assert str(change).startswith("the reward: its code, ")
    [change] = changes_of_rewards(first, RegexMatch("x"))
    assert change.after == "the rubric RegexMatch"


def test_changes_of_code_finds_entries_with_equal_files():
    weights = {"same": 1.0, "code": 1.0, "weight": 1.0}
    before, after = (
        RubricComposer(
            {"same": RegexMatch("x"), "code": constant(value), "weight": constant(value)},
            weights,
            episode_end=["code"],
        )
        for value in (0.0, 1.0)
    )
    changed = [RewardChange("changed", "per_turn.weight.weight", 1.0, 2.0)]
    [change] = changes_of_code(before, after, changed)
    assert (change.what, change.where) == ("code", "episode_end.code")


@pytest.mark.parametrize("what", ["added", "removed", "moved", "changed", "code"])
def test_reward_change_to_dict_is_json(what):
    change = RewardChange(what, "a.b", 1.0, "x")
    assert json.loads(json.dumps(change.to_dict())) == {
        "what": what, "where": "a.b", "before": 1.0, "after": "x",
    }  # fmt: skip
    assert str(change).startswith("a.b: ")
