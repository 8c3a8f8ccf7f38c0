"""`RewardRuntime`: the configuration of a running reward, and its changes."""

import json
import logging
import math
import pickle
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from guerdon import (
    Gate,
    RegexMatch,
    RewardConfig,
    RewardPipeline,
    Rubric,
    RubricComposer,
    ToxicityRubric,
    WeightedSum,
)
from guerdon.config import RewardRuntime
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


# Rendering


def test_to_dict_has_the_shape_of_the_file_with_tree_and_fingerprint():
    rendered = RewardRuntime(make()).to_dict()
    assert [each["name"] for each in rendered["per_turn"]] == ["near", "short"]
    assert [each["name"] for each in rendered["episode_end"]] == ["styled"]
    assert rendered["per_turn"][0]["weight"] == 1.0
    assert rendered["per_turn"][0]["config"] == {"tolerance": 0.5, "mode": "strict"}
    assert rendered["fingerprint"] == make().fingerprint()
    assert rendered["tree"][1]["path"] == "near"
    assert rendered["progress"] == {"episode": 0, "training_step": 0, "stage": None}


def test_to_dict_hides_attributes_that_are_not_tunable():
    assert "42" not in str(RewardRuntime(make()).to_dict()["episode_end"])


def test_to_dict_renders_a_tree_without_a_composer_as_one_entry():
    rendered = RewardRuntime(Gate(WeightedSum([Near()], [2.0]), 0.5)).to_dict()
    [entry] = rendered["per_turn"]
    assert (entry["name"], entry["weight"]) == ("reward", 1.0)
    assert entry["config"]["threshold"] == 0.5
    assert entry["config"]["rubric.weights"] == [2.0]
    assert entry["config"]["rubric.rubric_0.tolerance"] == 0.5


def test_to_dict_hides_private_keys():
    entries = [
        {"name": "near", "rubric": Near, "config": {"answer": 7.0, "tolerance": 1.0},
         "private": ["answer"]},
    ]  # fmt: skip
    pipeline = RewardPipeline.of({"schema_version": "1.0", "per_turn": entries})
    rendered = RewardRuntime(pipeline.make(), config=pipeline.config).to_dict()
    assert rendered["per_turn"][0]["config"] == {"tolerance": 1.0, "mode": "strict"}


# Changes


def test_update_takes_effect_in_the_next_episode():
    runtime, rubric = RewardRuntime(make()), make()
    runtime.apply(rubric)
    before = rubric._scored_by
    runtime.update({"weights": {"near": 5.0}})
    assert rubric(42.0, STEP) == 1.0
    runtime.apply(rubric)
    assert rubric(42.0, STEP) == 5.0
    assert rubric._scored_by == runtime.to_dict()["fingerprint"] != before


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
def test_update_logs_what_was_changed(change, what, old, new):
    runtime = RewardRuntime(make())
    answer = runtime.update(change, by="ann")
    assert answer["status"] == "ok"
    assert answer["change"]["changes"] == [{"what": what, "from": old, "to": new}]
    assert (answer["change"]["by"], answer["change"]["version"]) == ("ann", runtime.version)
    assert list(runtime.audit) == [answer["change"]]
    assert answer["config"] == runtime.to_dict()


def test_apply_sets_tunable_fields():
    runtime, rubric = RewardRuntime(make()), make()
    runtime.update({"per_turn": [{"name": "near", "config": {"tolerance": 2.0}}],
                 "episode_end": [{"name": "styled", "config": {"threshold": 0.75}}]})  # fmt: skip
    runtime.apply(rubric)
    assert (rubric.near.tolerance, rubric.styled.config.threshold) == (2.0, 0.75)
    assert rubric.styled.config.secret == "the answer is 42"


@pytest.mark.parametrize("present", ["long " * 100, (1, 2)], ids=["text", "tuple"])
def test_update_changes_one_tunable_field_beside_a_value_that_could_not_be_sent(present):
    class Tuned(Rubric):
        tunable = ("prompt", "threshold")

        def __init__(self):
            super().__init__()
            self.prompt, self.threshold = present, 0.5

        def forward(self, action, observation):
            return 0.0

    runtime = RewardRuntime(RubricComposer({"judge": Tuned()}, {"judge": 1.0}))
    answer = runtime.update({"per_turn": [{"name": "judge", "config": {"threshold": 0.7}}]})
    assert [each["what"] for each in answer["change"]["changes"]] == ["judge.threshold"]


def test_update_accepts_an_edited_rendering():
    runtime = RewardRuntime(make())
    rendered = runtime.to_dict()
    rendered["per_turn"][0]["weight"] = 9.0
    assert runtime.update(rendered)["config"]["per_turn"][0]["weight"] == 9.0


def test_update_without_a_difference_is_no_change():
    runtime = RewardRuntime(make())
    version = runtime.version
    assert runtime.update(runtime.to_dict())["change"] is None
    assert runtime.update({"weights": {"near": 1}})["change"] is None
    assert (runtime.version, len(runtime.audit)) == (version, 0)


WRONG = {
    "no object": ([], "a change must be an object"),
    "unknown field": ({"weigths": {}}, "weigths"),
    "unknown name": ({"weights": {"neer": 1.0}}, "did you mean 'near'"),
    "unknown entry": ({"per_turn": [{"name": "nope"}]}, "per_turn[0].name"),
    "other list": ({"episode_end": [{"name": "near", "weight": 1}]}, "is in per_turn"),
    "nan": ({"weights": {"near": math.nan}}, "weights.near: must be a finite number, got NaN"),
    "bool": ({"weights": {"near": True}}, "weights.near: must be a finite number, got true"),
    "text": ({"weights": {"near": "1"}}, 'weights.near: must be a finite number, got "1"'),
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
def test_update_refuses_a_change_as_a_whole(name):
    change, message = WRONG[name]
    runtime, rubric = RewardRuntime(make()), make()
    before = runtime.to_dict()
    if isinstance(change, dict):
        change = {"training_step": 7, "schedules": {"short": 0.5}, **change}
    with pytest.raises(RewardConfigError) as caught:
        runtime.update(change)
    assert any(message in problem for problem in caught.value.problems), caught.value.problems
    assert runtime.to_dict() == before
    runtime.apply(rubric)
    assert rubric.state_dict() == make().state_dict()


def test_update_lists_every_problem():
    changes = {"weights": {"near": math.inf, "who": 1}, "tree": [], "config": 3}
    with pytest.raises(RewardConfigError) as caught:
        RewardRuntime(make()).update(changes)
    assert len(caught.value.problems) == 4


def test_update_refuses_a_weight_of_a_tree_without_a_composer():
    runtime = RewardRuntime(Gate(Near(), 0.5))
    with pytest.raises(RewardConfigError, match="has no weight"):
        runtime.update({"weights": {"reward": 2.0}})
    runtime.update({"per_turn": [{"name": "reward", "config": {"threshold": 0.25}}]})
    rubric = Gate(Near(), 0.5)
    runtime.apply(rubric)
    assert rubric.threshold == 0.25


# Versions


def test_update_based_on_another_version_is_a_conflict():
    runtime = RewardRuntime(make())
    seen = runtime.version
    runtime.update({"weights": {"near": 2.0}}, version=seen)
    with pytest.raises(ConfigConflictError) as caught:
        runtime.update({"weights": {"near": 3.0}}, version=seen)
    assert (caught.value.sent, caught.value.present) == (seen, runtime.version)
    assert runtime.to_dict()["per_turn"][0]["weight"] == 2.0


def test_update_of_the_same_version_succeeds_once():
    runtime = RewardRuntime(make())
    seen, won, lost = runtime.version, [], []

    def change(weight):
        try:
            runtime.update({"weights": {"near": weight}}, version=seen)
            won.append(weight)
        except ConfigConflictError:
            lost.append(weight)

    threads = [threading.Thread(target=change, args=(float(place + 2),)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    assert runtime.to_dict()["per_turn"][0]["weight"] == won[0]


def test_version_differs_between_two_rewards():
    other = RubricComposer({"near": Near()}, {"near": 3.0})
    assert (
        RewardRuntime(make()).version
        == RewardRuntime(make()).version
        != RewardRuntime(other).version
    )


# Schedules and curricula


def test_apply_moves_weights_by_episode():
    schedule = {"piecewise": [[0, 1.0], [2, 0.0]]}
    pipeline = RewardPipeline(config(per_turn=[
        {"name": "near", "rubric": Near, "weight": 4.0, "schedule": schedule}]))  # fmt: skip
    runtime, scores = RewardRuntime(pipeline.make(), config=pipeline.config), []
    for _ in range(4):
        rubric = pipeline.make()
        runtime.apply(rubric)
        scores.append(rubric(42.0, STEP))
    assert scores == [4.0, 2.0, 0.0, 0.0]


def test_apply_moves_weights_by_the_reported_training_step():
    runtime, rubric = RewardRuntime(make()), make()
    spec = {"piecewise": [[0, 1.0], [100, 0.0]], "by": "training_step"}
    runtime.update({"schedules": {"near": spec}})
    scores = []
    for step in (0, 50, 100):
        assert runtime.update({"training_step": step})["change"] is None
        runtime.apply(rubric)
        scores.append(rubric(42.0, STEP))
    assert scores == [1.0, 0.5, 0.0]
    assert runtime.to_dict()["progress"]["training_step"] == 100


def test_update_removes_a_schedule_by_none():
    runtime = RewardRuntime(make())
    runtime.update({"schedules": {"near": 0.5}})
    runtime.update({"per_turn": [{"name": "near", "schedule": None}]})
    assert "schedule" not in runtime.to_dict()["per_turn"][0]


def test_apply_sets_the_fingerprint_of_the_episode():
    runtime, rubric, prints = RewardRuntime(make()), make(), []
    runtime.update({"schedules": {"near": {"step": [[0, 1.0], [2, 0.5]]}}})
    for _ in range(4):
        runtime.apply(rubric)
        prints.append(rubric._scored_by)
        assert rubric.fingerprint() == rubric._scored_by
    assert prints[0] == prints[1] != prints[2] == prints[3]


def test_apply_moves_on_with_the_curriculum():
    curriculum = [
        {"name": "first", "weights": {"near": 10.0},
         "until": {"component": "near", "mean_above": 0.5, "over": 2}},
        {"name": "then"},
    ]  # fmt: skip
    pipeline = RewardPipeline(config(curriculum=curriculum))
    runtime, rubric, weights = (
        RewardRuntime(pipeline.make(), config=pipeline.config),
        pipeline.make(),
        [],
    )
    for score in (0.0, 1.0, 1.0, 1.0):
        runtime.apply(rubric)
        weights.append(rubric.effective_weights["near"])
        rubric._watch({"near": score}, False)
        rubric._watch({"near": score}, True)
    assert weights == [10.0, 10.0, 10.0, 1.0]
    assert runtime.to_dict()["progress"]["stage"] == "then"


def test_begin_returns_a_configuration_for_a_tree_in_another_process():
    schedule = {"piecewise": [[0, 1.0], [2, 0.0]]}
    curriculum = [{"name": "first", "until": {"episodes": 9}}, {"name": "then"}]
    pipeline = RewardPipeline(
        config(
            per_turn=[{"name": "near", "rubric": Near, "weight": 4.0, "schedule": schedule}],
            curriculum=curriculum,
        )
    )
    runtime = RewardRuntime(pipeline.make(), config=pipeline.config)
    runtime.update({"per_turn": [{"name": "near", "weight": 8.0, "config": {"tolerance": 2.0}}]})
    for episode in range(2):
        here, there, means = pipeline.make(), pipeline.make(), []
        sent = pickle.dumps(runtime.begin())
        assert pickle.loads(sent).apply(there, means.append).episode == episode
        runtime.apply(here, episode=episode)
        assert there(43.0, STEP) == here(43.0, STEP) > 0.0
        assert there._scored_by == here._scored_by == here.fingerprint()
        there._watch({"near": 0.25}, True)
        assert means == [{"near": 0.25}]
    assert runtime.to_dict()["progress"]["episode"] == 2


# Sessions


def test_fork_has_its_own_changes_and_shares_the_progress():
    runtime = RewardRuntime(make())
    fork = runtime.fork()
    fork.update({"weights": {"near": 7.0}})
    runtime.update({"training_step": 5})
    assert runtime.to_dict()["per_turn"][0]["weight"] == 1.0
    assert fork.to_dict()["per_turn"][0]["weight"] == 7.0
    assert fork.to_dict()["progress"]["training_step"] == 5
    assert (len(runtime.audit), len(fork.audit)) == (0, 1)


names = st.sampled_from(["near", "styled", "short"])
numbers = st.floats(-10, 10)


@given(st.lists(st.dictionaries(names, numbers, min_size=1), max_size=5))
def test_update_keeps_the_latest_weights(updates):
    runtime, rubric, wanted = RewardRuntime(make()), make(), make().weights
    for update in updates:
        runtime.update({"weights": update})
        wanted |= update
    runtime.apply(rubric)
    assert rubric.weights == wanted
    assert {each["name"]: each["weight"] for which in ("per_turn", "episode_end")
            for each in runtime.to_dict()[which]} == wanted  # fmt: skip


def test_fork_follows_changes_except_for_its_own():
    runtime = RewardRuntime(make())
    fork = runtime.fork()
    fork.update({"weights": {"near": 7.0}})
    seen = fork.version
    runtime.update({"weights": {"near": 2.0, "short": 3.0}})
    rubric = make()
    fork.apply(rubric)
    assert rubric.weights == {"near": 7.0, "short": 3.0, "styled": 0.5}
    with pytest.raises(ConfigConflictError):
        fork.update({"weights": {"short": 1.0}}, version=seen)


def test_fork_removes_a_schedule_only_for_itself():
    runtime = RewardRuntime(make())
    runtime.update({"schedules": {"near": 0.5}})
    fork = runtime.fork()
    fork.update({"schedules": {"near": None}})
    one, two = make(), make()
    runtime.apply(one)
    fork.apply(two)
    assert (one(42.0, STEP) - two(42.0, STEP)) == -0.5
    assert (
        "schedule" in runtime.to_dict()["per_turn"][0],
        "schedule" in fork.to_dict()["per_turn"][0],
    ) == (
        True,
        False,
    )


# Trees that differ


def test_apply_keeps_weights_that_were_not_changed():
    runtime, own = RewardRuntime(make()), make()
    own.update_weights({"near": 9.0})
    runtime.update({"weights": {"short": 4.0}})
    runtime.apply(own)
    assert own.weights == {"near": 9.0, "short": 4.0, "styled": 0.5}
    assert own._scored_by is None  # the tree computes it


def test_apply_refuses_a_composer_of_other_components_after_a_change():
    runtime, other = RewardRuntime(make()), RubricComposer({"else": Near()}, {"else": 1.0})
    runtime.apply(other)
    runtime.update({"weights": {"near": 4.0}})
    with pytest.raises(RewardConfigError, match="near"):
        runtime.apply(other)
    assert other.weights == {"else": 1.0}


def test_apply_fingerprint_is_dropped_when_a_tree_is_changed_by_hand():
    runtime, rubric = RewardRuntime(make()), make()
    runtime.apply(rubric)
    assert rubric._scored_by == runtime.to_dict()["fingerprint"]
    rubric.near.tolerance = 3.0
    assert rubric._scored_by is None


def test_applied_undo_restores_the_tree():
    runtime, rubric = RewardRuntime(make()), make()
    runtime.apply(rubric)
    before = rubric._scored_by
    runtime.update(
        {"weights": {"near": 5.0}, "per_turn": [{"name": "short", "config": {"longest": 2}}]}
    )
    runtime.apply(rubric).undo()
    assert (rubric.weights, rubric.short.config.longest) == (make().weights, 10)
    assert rubric._scored_by == before


# Privacy


class Hides(Gate):
    """An author's own container."""

    def __init__(self):
        super().__init__(Near(), 0.5)
        self.key = "sesame"


def test_to_dict_hides_attributes_of_the_authors_containers():
    runtime = RewardRuntime(Hides())
    assert "sesame" not in json.dumps(runtime.to_dict())
    assert runtime.to_dict()["per_turn"][0]["config"]["threshold"] == 0.5


def test_private_keys_appear_neither_in_answers_nor_in_logs(caplog):
    entries = [
        {"name": "near", "rubric": Near, "config": {"mode": "sesame"}, "private": ["mode"]},
    ]  # fmt: skip
    pipeline = RewardPipeline.of({"schema_version": "1.0", "per_turn": entries})
    runtime = RewardRuntime(pipeline.make(), config=pipeline.config)
    change = {"per_turn": [{"name": "near", "config": {"mode": "open", "tolerance": 2.0}}]}
    with caplog.at_level(logging.INFO):
        answer = runtime.update(change)
    with pytest.raises(RewardConfigError) as refused:
        runtime.update({"per_turn": [{"name": "near", "config": {"mode": 3}}]})
    rendered = (
        json.dumps([answer, runtime.to_dict(), list(runtime.audit), str(refused.value)])
        + caplog.text
    )
    assert "sesame" not in rendered
    assert "'open'" not in rendered
    assert '"open"' not in rendered
    assert {"what": "near.mode", "from": "(private)", "to": "(private)"} in answer["change"][
        "changes"
    ]


def test_audit_truncates_long_values():
    rubric = WeightedSum([Near()] + [Short(LengthConfig()) for _ in range(500)], [1.0] * 501)
    runtime = RewardRuntime(rubric)
    change = {"per_turn": [{"name": "reward", "config": {"weights": [2.0] * 501}}]}
    runtime.update(change)
    assert len(json.dumps(list(runtime.audit))) < 5000


# Bounds


def test_update_accepts_a_rendering_from_before_later_episodes():
    runtime, rubric = RewardRuntime(make()), make()
    runtime.update({"schedules": {"near": {"piecewise": [[0, 1.0], [9, 0.0]]}}})
    rendered = runtime.to_dict()
    runtime.apply(rubric)
    runtime.update({"training_step": 3})
    rendered["per_turn"][0]["weight"] = 9.0
    assert rendered["progress"] != runtime.to_dict()["progress"]
    assert rendered["tree"] != runtime.to_dict()["tree"]
    assert runtime.update(rendered)["config"]["per_turn"][0]["weight"] == 9.0


@pytest.mark.parametrize(
    "moving",
    [{"progress": {"stage": "last"}}, {"tree": [1]}, {"fingerprint": ["x"]}, {"progress": 3}],
    ids=["part", "tree", "fingerprint", "number"],
)
def test_update_refuses_progress_tree_and_fingerprint(moving):
    with pytest.raises(RewardConfigError, match="can't be changed"):
        RewardRuntime(make()).update(moving)


@pytest.mark.parametrize("number", [10**400, 10**5000], ids=["400", "5000"])
def test_update_refuses_a_number_that_is_too_large(number):
    with pytest.raises(RewardConfigError, match="a finite number"):
        RewardRuntime(make()).update({"weights": {"near": number}})
    with pytest.raises(RewardConfigError, match="a finite number"):
        RewardRuntime(make()).update(
            {"per_turn": [{"name": "near", "config": {"tolerance": number}}]}
        )


def test_update_refuses_a_name_of_several_lines():
    with pytest.raises(RewardConfigError, match="one line"):
        RewardRuntime(make()).update({"by": "ann\nroot: all is well"})


def test_update_lists_the_first_of_many_problems():
    wrong = {f"name{place}": 1.0 for place in range(50_000)}
    with pytest.raises(RewardConfigError) as caught:
        RewardRuntime(make()).update({"weights": wrong})
    assert len(caught.value.problems) == 101
    assert caught.value.problems[-1] == "and more"


def test_update_checks_every_version_that_is_sent():
    runtime = RewardRuntime(make())
    seen = runtime.version
    runtime.update({"weights": {"near": 2.0}})
    change = {"weights": {"near": 3.0}}
    with pytest.raises(ConfigConflictError):
        runtime.update({**change, "version": runtime.version}, version=seen)
    with pytest.raises(ConfigConflictError):
        runtime.update({**change, "version": seen}, version=runtime.version)
    assert runtime.update(change, version=[seen, runtime.version])["status"] == "ok"


def test_to_dict_renders_infinite_ranges():
    class Endless(Near):
        score_range = (0.0, math.inf)

    rendered = RewardRuntime(Endless()).to_dict()
    assert json.loads(json.dumps(rendered, allow_nan=False))["tree"][0]["range"] == [
        0.0,
        "Infinity",
    ]


def test_update_keeps_a_bounded_history():
    runtime = RewardRuntime(make())
    for number in range(2000):
        runtime.update({"weights": {"near": float(number)}})
    assert (len(runtime.audit), len(runtime._prototype._descriptions)) == (1000, 256)


def test_to_dict_does_not_wait_for_a_slow_field():
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
    runtime, rubric = RewardRuntime(Slow()), Slow()
    before = runtime.to_dict()
    change = {"per_turn": [{"name": "reward", "config": {"pace": 2.0}}]}
    slow = threading.Thread(target=runtime.update, args=(change,))
    slow.start()
    assert begun.wait(5)
    assert runtime.to_dict() == before
    runtime.apply(rubric)
    go_on.set()
    slow.join()
    assert runtime.to_dict()["per_turn"][0]["config"]["pace"] == 2.0


def test_update_tunes_the_threshold_of_toxicity():
    runtime = RewardRuntime(RubricComposer({"toxic": ToxicityRubric(threshold=0.8)}, [-10.0]))
    entry = {"name": "toxic", "config": {"threshold": 0.5}}
    assert runtime.update({"per_turn": [entry]})["change"]["changes"] == [
        {"what": "toxic.threshold", "from": 0.8, "to": 0.5}
    ]
    with pytest.raises(RewardConfigError, match="threshold"):
        runtime.update({"per_turn": [{"name": "toxic", "config": {"threshold": 1.5}}]})


@pytest.mark.parametrize("threshold", [10, -1, False])
def test_update_refuses_a_threshold_outside_of_the_score_range(threshold):
    runtime = RewardRuntime(RubricComposer({"polite": Gate(RegexMatch("please"), 0.5)}, [1.0]))
    change = {"per_turn": [{"name": "polite", "config": {"threshold": threshold}}]}
    with pytest.raises(RewardConfigError, match=r"polite.config.threshold: |per_turn\[0\]"):
        runtime.update(change)
    assert runtime.to_dict()["per_turn"][0]["config"] == {"threshold": 0.5}
