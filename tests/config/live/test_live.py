"""`LiveReward`: the configuration of a reward that runs, and its changes."""

import json
import logging
import math
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from guerdon import (
    Gate,
    RewardConfig,
    RewardPipeline,
    Rubric,
    RubricComposer,
    ToxicityRubric,
    WeightedSum,
)
from guerdon.config import LiveReward
from guerdon.errors import ConfigConflictError, RewardConfigError

STEP = SimpleNamespace(done=False)


class Near(Rubric):
    """1 where the action is near enough."""

    score_range = (0.0, 1.0)
    tunable = ("tolerance", "mode")

    def __init__(self, tolerance=0.5, mode="strict", answer=42.0):
        super().__init__()
        self.tolerance = tolerance
        self.mode = mode
        self.answer = answer

    def forward(self, action, observation):
        return float(abs(action - self.answer) <= self.tolerance)


class StyleConfig(BaseModel):
    threshold: float = Field(default=0.5, ge=0, le=1)
    secret: str = "the answer is 42"


@dataclass
class LengthConfig:
    longest: int = 10

    def __post_init__(self):
        if self.longest < 1:
            raise ValueError("longest must be at least 1")


class Styled(Rubric):
    """Above its threshold."""

    tunable = ("threshold",)

    def __init__(self, config: StyleConfig):
        super().__init__()
        self.config = config

    def forward(self, action, observation):
        return float(action >= self.config.threshold)


class Short(Rubric):
    tunable = ("longest",)

    def __init__(self, config: LengthConfig):
        super().__init__()
        self.config = config

    def forward(self, action, observation):
        return float(action <= self.config.longest)


def make():
    return RubricComposer(
        {"near": Near(), "styled": Styled(StyleConfig()), "short": Short(LengthConfig())},
        {"near": 1.0, "styled": 0.5, "short": 0.25},
        normalize=False,
        episode_end=["styled"],
    )


def config(**more):
    entries = [{"name": "near", "rubric": Near, "weight": 1.0, "config": {"tolerance": 0.5}}]
    return RewardConfig.from_dict({"schema_version": "1.0", "per_turn": entries, **more})


# What it tells


def test_it_tells_the_shape_of_the_file_with_the_tree_and_its_fingerprint():
    told = LiveReward(make()).told()
    assert [each["name"] for each in told["per_turn"]] == ["near", "short"]
    assert [each["name"] for each in told["episode_end"]] == ["styled"]
    assert told["per_turn"][0]["weight"] == 1.0
    assert told["per_turn"][0]["config"] == {"tolerance": 0.5, "mode": "strict"}
    assert told["fingerprint"] == make().fingerprint()
    assert told["tree"][1]["path"] == "near"
    assert told["progress"] == {"episode": 0, "training_step": 0, "stage": None}


def test_what_is_not_tunable_is_not_told_of_a_reward_in_code():
    assert "42" not in str(LiveReward(make()).told()["episode_end"])


def test_a_tree_without_a_composer_is_one_entry():
    told = LiveReward(Gate(WeightedSum([Near()], [2.0]), 0.5)).told()
    [entry] = told["per_turn"]
    assert (entry["name"], entry["weight"]) == ("reward", 1.0)
    assert entry["config"]["threshold"] == 0.5
    assert entry["config"]["rubric.weights"] == [2.0]
    assert entry["config"]["rubric.rubric_0.tolerance"] == 0.5


def test_what_its_file_says_is_told_but_for_what_is_private():
    entries = [
        {"name": "near", "rubric": Near, "config": {"answer": 7.0, "tolerance": 1.0},
         "private": ["answer"]},
    ]  # fmt: skip
    pipeline = RewardPipeline.of({"schema_version": "1.0", "per_turn": entries})
    told = LiveReward(pipeline.make(), config=pipeline.config).told()
    assert told["per_turn"][0]["config"] == {"tolerance": 1.0, "mode": "strict"}


# Changes


def test_a_change_counts_from_the_next_episode_on():
    live, rubric = LiveReward(make()), make()
    live.apply(rubric)
    before = rubric._scored_by
    live.update({"weights": {"near": 5.0}})
    assert rubric(42.0, STEP) == 1.0
    live.apply(rubric)
    assert rubric(42.0, STEP) == 5.0
    assert rubric._scored_by == live.told()["fingerprint"] != before


@pytest.mark.parametrize(
    ("change", "what", "old", "new"),
    [
        ({"weights": {"near": 2}}, "per_turn.near.weight", 1.0, 2.0),
        ({"per_turn": [{"name": "near", "weight": -3.5}]}, "per_turn.near.weight", 1.0, -3.5),
        ({"per_turn": [{"name": "near", "config": {"tolerance": 2.0}}]},
         "near.tolerance", 0.5, 2.0),
        ({"per_turn": [{"name": "near", "config": {"mode": "loose"}}]},
         "near.mode", "strict", "loose"),
        ({"episode_end": [{"name": "styled", "config": {"threshold": 0.75}}]},
         "styled.threshold", 0.5, 0.75),
        ({"per_turn": [{"name": "short", "config": {"longest": 3}}]}, "short.longest", 10, 3),
        ({"schedules": {"near": 0.5}}, "per_turn.near.schedule", None,
         {"constant": 0.5, "by": "episode"}),
    ],
    ids=["weights", "entry", "attribute", "text", "pydantic", "dataclass", "schedule"],
)  # fmt: skip
def test_what_was_changed_is_remembered(change, what, old, new):
    live = LiveReward(make())
    answer = live.update(change, by="ann")
    assert answer["status"] == "ok"
    assert answer["change"]["changes"] == [{"what": what, "from": old, "to": new}]
    assert (answer["change"]["by"], answer["change"]["version"]) == ("ann", live.version)
    assert list(live.audit) == [answer["change"]]
    assert answer["config"] == live.told()


def test_tuned_fields_reach_the_rubrics():
    live, rubric = LiveReward(make()), make()
    live.update({"per_turn": [{"name": "near", "config": {"tolerance": 2.0}}],
                 "episode_end": [{"name": "styled", "config": {"threshold": 0.75}}]})  # fmt: skip
    live.apply(rubric)
    assert (rubric.near.tolerance, rubric.styled.config.threshold) == (2.0, 0.75)
    assert rubric.styled.config.secret == "the answer is 42"


def test_what_was_told_may_be_sent_back_with_what_is_to_change():
    live = LiveReward(make())
    told = live.told()
    told["per_turn"][0]["weight"] = 9.0
    assert live.update(told)["config"]["per_turn"][0]["weight"] == 9.0


def test_what_changes_nothing_is_no_change():
    live = LiveReward(make())
    version = live.version
    assert live.update(live.told())["change"] is None
    assert live.update({"weights": {"near": 1}})["change"] is None
    assert (live.version, len(live.audit)) == (version, 0)


WRONG = {
    "no object": ([], "a change is an object"),
    "unknown field": ({"weigths": {}}, "weigths"),
    "unknown name": ({"weights": {"neer": 1.0}}, "did you mean 'near'"),
    "unknown entry": ({"per_turn": [{"name": "nope"}]}, "per_turn[0].name"),
    "other list": ({"episode_end": [{"name": "near", "weight": 1}]}, "stands in per_turn"),
    "nan": ({"weights": {"near": math.nan}}, "weights.near: it is nan"),
    "bool": ({"weights": {"near": True}}, "weights.near: it is True"),
    "text": ({"weights": {"near": "1"}}, "weights.near: it is '1'"),
    "code": ({"per_turn": [{"name": "near", "rubric": "os.system"}]}, "per_turn[0].rubric"),
    "file": ({"per_turn": [{"name": "near", "config": {"path": "/etc/passwd"}}]}, "config.path"),
    "untunable": ({"per_turn": [{"name": "near", "config": {"answer": 1}}]}, "config.answer"),
    "template": ({"per_turn": [{"name": "near", "config": {"mode": "x" * 201}}]}, "characters"),
    "kind": ({"per_turn": [{"name": "near", "config": {"tolerance": "x"}}]}, "a finite number"),
    "refused by pydantic": (
        {"episode_end": [{"name": "styled", "config": {"threshold": 2.0}}]},
        "episode_end[0].config.threshold",
    ),
    "refused by a dataclass": (
        {"per_turn": [{"name": "short", "config": {"longest": 0}}]}, "at least 1",
    ),
    "backwards": ({"schedules": {"near": {"piecewise": [[5, 1], [1, 0]]}}}, "schedules.near"),
    "services": ({"mcp_services": {"judge": {}}}, "mcp_services"),
    "version": ({"schema_version": "9.0"}, "schema_version"),
    "twice": ({"weights": {"near": 1}, "per_turn": [{"name": "near", "weight": 3}]}, "twice"),
    "step": ({"training_step": -1}, "training_step"),
    "entry field": ({"per_turn": [{"name": "near", "wieght": 1}]}, "wieght"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_what_can_not_be_changed_is_refused_whole(name):
    change, said = WRONG[name]
    live, rubric = LiveReward(make()), make()
    before = live.told()
    if isinstance(change, dict):
        change = {"training_step": 7, "schedules": {"short": 0.5}, **change}
    with pytest.raises(RewardConfigError) as caught:
        live.update(change)
    assert any(said in problem for problem in caught.value.problems), caught.value.problems
    assert live.told() == before
    live.apply(rubric)
    assert rubric.state_dict() == make().state_dict()


def test_every_reason_is_listed():
    changes = {"weights": {"near": math.inf, "who": 1}, "tree": [], "config": 3}
    with pytest.raises(RewardConfigError) as caught:
        LiveReward(make()).update(changes)
    assert len(caught.value.problems) == 4


def test_a_reward_that_stands_alone_has_no_weight_to_change():
    live = LiveReward(Gate(Near(), 0.5))
    with pytest.raises(RewardConfigError, match="stands alone"):
        live.update({"weights": {"reward": 2.0}})
    live.update({"per_turn": [{"name": "reward", "config": {"threshold": 0.25}}]})
    rubric = Gate(Near(), 0.5)
    live.apply(rubric)
    assert rubric.threshold == 0.25


# Versions


def test_a_change_of_another_version_is_a_conflict():
    live = LiveReward(make())
    seen = live.version
    live.update({"weights": {"near": 2.0}}, version=seen)
    with pytest.raises(ConfigConflictError) as caught:
        live.update({"weights": {"near": 3.0}}, version=seen)
    assert (caught.value.sent, caught.value.present) == (seen, live.version)
    assert live.told()["per_turn"][0]["weight"] == 2.0


def test_of_two_that_saw_the_same_version_one_wins():
    live = LiveReward(make())
    seen, won, lost = live.version, [], []

    def change(weight):
        try:
            live.update({"weights": {"near": weight}}, version=seen)
            won.append(weight)
        except ConfigConflictError:
            lost.append(weight)

    threads = [threading.Thread(target=change, args=(float(place + 2),)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    assert live.told()["per_turn"][0]["weight"] == won[0]


def test_a_version_tells_two_servers_apart():
    other = RubricComposer({"near": Near()}, {"near": 3.0})
    assert LiveReward(make()).version == LiveReward(make()).version != LiveReward(other).version


# Schedules and curricula


def test_a_schedule_moves_weights_by_episode():
    schedule = {"piecewise": [[0, 1.0], [2, 0.0]]}
    pipeline = RewardPipeline(config(per_turn=[
        {"name": "near", "rubric": Near, "weight": 4.0, "schedule": schedule}]))  # fmt: skip
    live, scores = LiveReward(pipeline.make(), config=pipeline.config), []
    for _ in range(4):
        rubric = pipeline.make()
        live.apply(rubric)
        scores.append(rubric(42.0, STEP))
    assert scores == [4.0, 2.0, 0.0, 0.0]


def test_a_schedule_moves_weights_by_the_step_that_the_trainer_reports():
    live, rubric = LiveReward(make()), make()
    spec = {"piecewise": [[0, 1.0], [100, 0.0]], "by": "training_step"}
    live.update({"schedules": {"near": spec}})
    scores = []
    for step in (0, 50, 100):
        assert live.update({"training_step": step})["change"] is None
        live.apply(rubric)
        scores.append(rubric(42.0, STEP))
    assert scores == [1.0, 0.5, 0.0]
    assert live.told()["progress"]["training_step"] == 100


def test_a_schedule_is_taken_away_by_none():
    live = LiveReward(make())
    live.update({"schedules": {"near": 0.5}})
    live.update({"per_turn": [{"name": "near", "schedule": None}]})
    assert "schedule" not in live.told()["per_turn"][0]


def test_fingerprints_follow_what_the_episode_is_scored_by():
    live, rubric, prints = LiveReward(make()), make(), []
    live.update({"schedules": {"near": {"step": [[0, 1.0], [2, 0.5]]}}})
    for _ in range(4):
        live.apply(rubric)
        prints.append(rubric._scored_by)
        assert rubric.fingerprint() == rubric._scored_by
    assert prints[0] == prints[1] != prints[2] == prints[3]


def test_a_curriculum_moves_on_with_what_episodes_score():
    curriculum = [
        {"name": "first", "weights": {"near": 10.0},
         "until": {"component": "near", "mean_above": 0.5, "over": 2}},
        {"name": "then"},
    ]  # fmt: skip
    pipeline = RewardPipeline(config(curriculum=curriculum))
    live, rubric, weights = LiveReward(pipeline.make(), config=pipeline.config), pipeline.make(), []
    for score in (0.0, 1.0, 1.0, 1.0):
        live.apply(rubric)
        weights.append(rubric.effective_weights["near"])
        rubric._watch({"near": score}, False)
        rubric._watch({"near": score}, True)
    assert weights == [10.0, 10.0, 10.0, 1.0]
    assert live.told()["progress"]["stage"] == "then"


# Sessions of their own


def test_a_fork_changes_by_itself_and_shares_the_progress():
    live = LiveReward(make())
    fork = live.fork()
    fork.update({"weights": {"near": 7.0}})
    live.update({"training_step": 5})
    assert live.told()["per_turn"][0]["weight"] == 1.0
    assert fork.told()["per_turn"][0]["weight"] == 7.0
    assert fork.told()["progress"]["training_step"] == 5
    assert (len(live.audit), len(fork.audit)) == (0, 1)


names = st.sampled_from(["near", "styled", "short"])
numbers = st.floats(-10, 10)


@given(st.lists(st.dictionaries(names, numbers, min_size=1), max_size=5))
def test_weights_are_those_that_were_sent_last(updates):
    live, rubric, wanted = LiveReward(make()), make(), make().weights
    for update in updates:
        live.update({"weights": update})
        wanted |= update
    live.apply(rubric)
    assert rubric.weights == wanted
    assert {each["name"]: each["weight"] for which in ("per_turn", "episode_end")
            for each in live.told()[which]} == wanted  # fmt: skip


def test_a_session_follows_what_is_changed_for_all_but_for_its_own():
    live = LiveReward(make())
    fork = live.fork()
    fork.update({"weights": {"near": 7.0}})
    seen = fork.version
    live.update({"weights": {"near": 2.0, "short": 3.0}})
    rubric = make()
    fork.apply(rubric)
    assert rubric.weights == {"near": 7.0, "short": 3.0, "styled": 0.5}
    with pytest.raises(ConfigConflictError):
        fork.update({"weights": {"short": 1.0}}, version=seen)


def test_a_session_that_takes_a_schedule_away_leaves_it_to_the_others():
    live = LiveReward(make())
    live.update({"schedules": {"near": 0.5}})
    fork = live.fork()
    fork.update({"schedules": {"near": None}})
    one, two = make(), make()
    live.apply(one)
    fork.apply(two)
    assert (one(42.0, STEP) - two(42.0, STEP)) == -0.5
    assert ("schedule" in live.told()["per_turn"][0], "schedule" in fork.told()["per_turn"][0]) == (
        True,
        False,
    )


# What trees have of their own


def test_weights_that_nobody_changed_stay_as_a_tree_has_them():
    live, own = LiveReward(make()), make()
    own.update_weights({"near": 9.0})
    live.update({"weights": {"short": 4.0}})
    live.apply(own)
    assert own.weights == {"near": 9.0, "short": 4.0, "styled": 0.5}
    assert own._scored_by is None  # it is taken from the tree itself


def test_a_composer_of_other_components_is_left_alone_until_one_is_changed():
    live, other = LiveReward(make()), RubricComposer({"else": Near()}, {"else": 1.0})
    live.apply(other)
    live.update({"weights": {"near": 4.0}})
    with pytest.raises(RewardConfigError, match="near"):
        live.apply(other)
    assert other.weights == {"else": 1.0}


def test_what_is_changed_by_hand_during_an_episode_is_not_told_as_the_configuration():
    live, rubric = LiveReward(make()), make()
    live.apply(rubric)
    assert rubric._scored_by == live.told()["fingerprint"]
    rubric.near.tolerance = 3.0
    assert rubric._scored_by is None


def test_an_episode_that_did_not_begin_leaves_the_tree_as_it_was():
    live, rubric = LiveReward(make()), make()
    live.apply(rubric)
    before = rubric._scored_by
    live.update(
        {"weights": {"near": 5.0}, "per_turn": [{"name": "short", "config": {"longest": 2}}]}
    )
    live.apply(rubric).undo()
    assert (rubric.weights, rubric.short.config.longest) == (make().weights, 10)
    assert rubric._scored_by == before


# What isn't told


class Hides(Gate):
    """An author's own container."""

    def __init__(self):
        super().__init__(Near(), 0.5)
        self.key = "sesame"


def test_what_the_containers_of_an_author_hold_is_not_told():
    live = LiveReward(Hides())
    assert "sesame" not in json.dumps(live.told())
    assert live.told()["per_turn"][0]["config"]["threshold"] == 0.5


def test_what_is_private_is_told_nowhere(caplog):
    entries = [
        {"name": "near", "rubric": Near, "config": {"mode": "sesame"}, "private": ["mode"]},
    ]  # fmt: skip
    pipeline = RewardPipeline.of({"schema_version": "1.0", "per_turn": entries})
    live = LiveReward(pipeline.make(), config=pipeline.config)
    change = {"per_turn": [{"name": "near", "config": {"mode": "open", "tolerance": 2.0}}]}
    with caplog.at_level(logging.INFO):
        answer = live.update(change)
    with pytest.raises(RewardConfigError) as refused:
        live.update({"per_turn": [{"name": "near", "config": {"mode": 3}}]})
    told = json.dumps([answer, live.told(), list(live.audit), str(refused.value)]) + caplog.text
    assert "sesame" not in told
    assert "'open'" not in told
    assert '"open"' not in told
    assert {"what": "near.mode", "from": "(private)", "to": "(private)"} in answer["change"][
        "changes"
    ]


def test_a_long_value_is_remembered_in_short():
    rubric = WeightedSum([Near()] + [Short(LengthConfig()) for _ in range(500)], [1.0] * 501)
    live = LiveReward(rubric)
    change = {"per_turn": [{"name": "reward", "config": {"weights": [2.0] * 501}}]}
    live.update(change)
    assert len(json.dumps(list(live.audit))) < 5000


# What may be sent


def test_what_was_told_may_be_sent_back_when_episodes_have_begun_since():
    live, rubric = LiveReward(make()), make()
    live.update({"schedules": {"near": {"piecewise": [[0, 1.0], [9, 0.0]]}}})
    told = live.told()
    live.apply(rubric)
    live.update({"training_step": 3})
    told["per_turn"][0]["weight"] = 9.0
    assert told["progress"] != live.told()["progress"]
    assert told["tree"] != live.told()["tree"]
    assert live.update(told)["config"]["per_turn"][0]["weight"] == 9.0


@pytest.mark.parametrize(
    "moving",
    [{"progress": {"stage": "last"}}, {"tree": [1]}, {"fingerprint": ["x"]}, {"progress": 3}],
    ids=["part", "tree", "fingerprint", "number"],
)
def test_what_moves_by_itself_can_not_be_set(moving):
    with pytest.raises(RewardConfigError, match="can't be changed"):
        LiveReward(make()).update(moving)


@pytest.mark.parametrize("number", [10**400, 10**5000], ids=["400", "5000"])
def test_a_number_that_no_float_can_hold_is_no_weight(number):
    with pytest.raises(RewardConfigError, match="a finite number"):
        LiveReward(make()).update({"weights": {"near": number}})
    with pytest.raises(RewardConfigError, match="a finite number"):
        LiveReward(make()).update({"per_turn": [{"name": "near", "config": {"tolerance": number}}]})


def test_a_name_of_many_lines_is_no_name():
    with pytest.raises(RewardConfigError, match="on one line"):
        LiveReward(make()).update({"by": "ann\nroot: all is well"})


def test_of_very_many_mistakes_the_first_are_told():
    wrong = {f"name{place}": 1.0 for place in range(50_000)}
    with pytest.raises(RewardConfigError) as caught:
        LiveReward(make()).update({"weights": wrong})
    assert len(caught.value.problems) == 101
    assert caught.value.problems[-1] == "and more"


def test_every_version_that_is_sent_has_to_be_the_present_one():
    live = LiveReward(make())
    seen = live.version
    live.update({"weights": {"near": 2.0}})
    change = {"weights": {"near": 3.0}}
    with pytest.raises(ConfigConflictError):
        live.update({**change, "version": live.version}, version=seen)
    with pytest.raises(ConfigConflictError):
        live.update({**change, "version": seen}, version=live.version)
    assert live.update(change, version=[seen, live.version])["status"] == "ok"


def test_a_range_without_an_end_can_be_told():
    class Endless(Near):
        score_range = (0.0, math.inf)

    told = LiveReward(Endless()).told()
    assert json.loads(json.dumps(told, allow_nan=False))["tree"][0]["range"] == [0.0, "Infinity"]


def test_many_changes_keep_little():
    live = LiveReward(make())
    for number in range(2000):
        live.update({"weights": {"near": float(number)}})
    assert (len(live.audit), len(live._prototype._looks)) == (1000, 256)


def test_a_slow_field_does_not_keep_others_from_being_told():
    class Slow(Near):
        tunable = ("pace",)

        @property
        def pace(self):
            return self.__dict__.get("_pace", 1.0)

        @pace.setter
        def pace(self, value):
            begun.set()
            assert go_on.wait(5)
            self.__dict__["_pace"] = value

    begun, go_on = threading.Event(), threading.Event()
    live, rubric = LiveReward(Slow()), Slow()
    before = live.told()
    change = {"per_turn": [{"name": "reward", "config": {"pace": 2.0}}]}
    slow = threading.Thread(target=live.update, args=(change,))
    slow.start()
    assert begun.wait(5)
    assert live.told() == before
    live.apply(rubric)
    go_on.set()
    slow.join()
    assert live.told()["per_turn"][0]["config"]["pace"] == 2.0


def test_the_threshold_of_toxicity_is_tuned_while_training_runs():
    live = LiveReward(RubricComposer({"toxic": ToxicityRubric(threshold=0.8)}, [-10.0]))
    entry = {"name": "toxic", "config": {"threshold": 0.5}}
    assert live.update({"per_turn": [entry]})["change"]["changes"] == [
        {"what": "toxic.threshold", "from": 0.8, "to": 0.5}
    ]
    with pytest.raises(RewardConfigError, match="threshold"):
        live.update({"per_turn": [{"name": "toxic", "config": {"threshold": 1.5}}]})
