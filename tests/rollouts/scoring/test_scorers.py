"""RubricScorer and score_rollouts: one row for each rollout."""

import logging

import anyio
import pytest

from guerdon import reward_function
from guerdon.errors import AsyncRubricError, InvalidArgumentError, RolloutError
from guerdon.rollouts import FunctionScorer, RolloutRecord, RubricScorer, score_rollouts
from guerdon.rollouts.scoring.scorers import scorer_of
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
    as_rubric,
)
from guerdon.types import Message, Rollout

KEYS = [
    "id", "group", "score", "is_score_valid", "components", "step_rewards", "error", "fingerprint",
]  # fmt: skip


class Number(Rubric):
    """The turn is a number: its score."""

    def forward(self, action, observation):
        return float(action.content)


class AsyncNumber(Number):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return float(action.content)


class Last(ExponentialDiscountingTrajectoryRubric):
    """The last turn is a number: the score of the episode."""

    def score_trajectory(self, trajectory):
        return float(trajectory[-1][0].content)


class Fails(Rubric):
    """Raises what it is given where the turn is 'fail'."""

    def __init__(self, error=None):
        super().__init__()
        self._error = error or ValueError("no luck")

    def forward(self, action, observation):
        if action.content == "fail":
            raise self._error
        return 1.0


@pytest.fixture
def score(row):
    """Scores one rollout of turns."""

    def score(rubric, *turns, **columns):
        with RubricScorer(as_rubric(rubric)) as scorer:
            return scorer.score(Rollout.from_row(row(*turns, **columns)))

    return score


def test_a_row_has_exactly_these_keys(score):
    rubric = Number()
    assert list(score(rubric, "0.5")) == KEYS
    assert list(score(rubric, "x")) == KEYS
    with RubricScorer(rubric) as scorer:
        assert list(scorer.failed(RolloutError("no", line=3))) == KEYS


def test_a_row_of_one_step(score):
    rubric = WeightedSum([Number(), as_rubric(lambda a, o: 1.0)], [0.5, 0.25])
    assert score(rubric, "0.5", id="q7", group="g") == {
        "id": "q7",
        "group": "g",
        "score": 0.5,
        "is_score_valid": True,
        "components": {"rubric_0": 0.5, "rubric_1": 1.0},
        "step_rewards": [0.5],
        "error": None,
        "fingerprint": rubric.fingerprint(),
    }


def test_a_leaf_has_no_components(score):
    assert score(Number(), "0.5", "0.25")["components"] == {}


def test_the_score_is_the_sum_of_the_step_values(score):
    row = score(Number(), "0.5", "-0.125", "2")
    assert (row["score"], row["step_rewards"]) == (2.375, [0.5, -0.125, 2.0])


def test_the_components_are_those_of_the_last_step_beside_their_means(score):
    row = score(WeightedSum([Number()], [1.0]), "0.5", "0.25", "0.75")
    assert row["components"] == {"rubric_0": 0.75, "rubric_0/mean": 0.5}


def test_a_component_that_was_not_reached_at_the_last_step_has_only_a_mean(score):
    rubric = Sequential(Gate(Number(), 0.5), Number())
    row = score(rubric, "1", "0.5", "0.25")
    assert row["components"] == {
        "rubric_0": 0.0,
        "rubric_0.rubric": 0.25,
        "rubric_0/mean": 0.5,
        "rubric_0.rubric/mean": 1.75 / 3,
        "rubric_1/mean": 0.75,
    }
    assert row["score"] == 1.5


def test_with_trajectory_rubrics_the_step_rewards_are_theirs(score):
    row = score(Last(gamma=0.5), "0", "0", "4")
    assert (row["score"], row["step_rewards"]) == (4.0, [1.0, 2.0, 4.0])


def test_step_rewards_compose_through_the_tree(score):
    row = score(WeightedSum([Number(), Last(gamma=0.5)], [1.0, 10.0]), "1", "2")
    assert row["step_rewards"] == [1.0 + 10.0, 2.0 + 20.0]
    assert row["score"] == 1.0 + (2.0 + 20.0)


def test_the_rubric_sees_the_columns_and_what_followed(score):
    def reward(action, observation):
        truth = observation.metadata["ground_truth"]
        return float(truth == action.message and observation.done)

    assert score(reward, "41", "42", ground_truth="42")["step_rewards"] == [0.0, 1.0]


def test_integers_come_out_as_floats(score):
    values = score(lambda a, o: 1, "x", "y")
    assert values["score"] == 2.0
    assert {type(value) for value in (values["score"], *values["step_rewards"])} == {float}


# Async


def test_async_trees_are_scored_alike(score):
    turns = "0.5", "0.25", "0.75"
    sync = score(WeightedSum([Number(), Last()], [0.5, 0.5]), *turns)
    mixed = score(WeightedSum([AsyncNumber(), Last()], [0.5, 0.5]), *turns)
    assert {**mixed, "fingerprint": None} == {**sync, "fingerprint": None}


def test_one_event_loop_serves_all_rollouts(row):
    loops = set()

    async def reward(action, observation):
        loops.add(anyio.lowlevel.current_token())
        return 0.5

    rollouts = [Rollout.from_row(row("a", "b")) for _ in range(3)]
    assert [r["score"] for r in score_rollouts(as_rubric(reward), rollouts)] == [1.0] * 3
    assert len(loops) == 1


def test_an_async_rubric_inside_a_running_loop_is_refused_and_no_row_fails(score):
    async def reward(action, observation):
        return 0.5

    async def inside():
        return score(reward, "a")

    with pytest.raises(AsyncRubricError):
        anyio.run(inside)


# Failures


def test_a_failure_is_no_zero(score):
    rubric = WeightedSum([Number(), Fails()], [0.5, 0.5])
    row = score(rubric, "1", "2", "fail")
    assert row["score"] is None
    assert row["is_score_valid"] is False
    assert row["step_rewards"] is None


@pytest.mark.parametrize(
    ("turns", "step"), [(["fail"], 0), (["1", "fail"], 1), (["1", "fail", "1", "fail"], 1)]
)
def test_the_error_names_the_step_and_the_rubric(score, turns, step):
    row = score(WeightedSum([Gate(Fails())], [1.0]), *turns)
    assert row["error"] == f"step {step}: rubric 'rubric_0.rubric': ValueError: no luck"


def test_the_error_of_a_root_names_the_step(score):
    assert score(Fails(), "1", "fail")["error"] == "step 1: ValueError: no luck"


def test_the_error_of_an_async_tree_names_the_step_and_the_rubric(score):
    row = score(Sequential(AsyncNumber()), "1", "x")
    assert row["error"] == (
        "step 1: rubric 'rubric_0': ValueError: could not convert string to float: 'x'"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "lexicon.txt"),
         "FileNotFoundError: [Errno 2] No such file or directory: 'lexicon.txt'"),
        (KeyError("gold"), "KeyError: 'gold'"),
        (ValueError(), "ValueError"),
        (RuntimeError("a", 1), "RuntimeError: ('a', 1)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
def test_the_error_says_what_the_exception_says(score, error, text, inside):
    row = score(Sequential(Fails(error)) if inside else Fails(error), "fail")
    assert row["error"] == f"step 0: rubric 'rubric_0': {text}" if inside else f"step 0: {text}"


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


def test_an_exception_that_can_not_say_what_it_is_is_a_failed_row(score):
    row = score(Sequential(Fails(Mute())), "fail")
    assert row["score"] is None
    assert "Mute" in row["error"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "1", True])
def test_a_score_that_is_no_number_is_a_failed_row(score, value):
    row = score(Sequential(as_rubric(lambda a, o: value)), "x")
    assert row["score"] is None
    assert row["error"].startswith("step 0: rubric 'rubric_0': InvalidScoreError: ")


def test_components_of_a_failed_row_are_those_that_were_known(score):
    row = score(Sequential(Number(), Fails()), "1", "2", "fail")
    assert row["components"]["rubric_0/mean"] == 1.5
    row = score(WeightedSum([as_rubric(lambda a, o: 0.5), Fails()], [1.0, 1.0]), "1", "fail")
    assert row["components"] == {"rubric_0": 0.5, "rubric_0/mean": 0.5, "rubric_1/mean": 1.0}


def test_a_reset_that_raises_is_a_failed_row_and_the_rest_goes_on(row):
    class Stubborn(Number):
        def __init__(self):
            super().__init__()
            self._resets = 0

        def reset(self):
            self._resets += 1
            if self._resets == 2:
                raise OSError("the game is gone")

    rollouts = [Rollout.from_row(row("1", id=i)) for i in range(3)]
    rows = list(score_rollouts(Stubborn(), rollouts))
    assert [r["score"] for r in rows] == [1.0, None, 1.0]
    assert "OSError: the game is gone" in rows[1]["error"]


def test_step_rewards_that_fail_are_a_failed_row(score):
    class Bad(Last):
        def compute_step_rewards(self):
            raise ArithmeticError("too many steps")

    row = score(Bad(), "1", "2")
    assert (row["score"], row["step_rewards"]) == (None, None)
    assert "ArithmeticError: too many steps" in row["error"]


def test_step_rewards_are_checked(score):
    class Bad(Last):
        def compute_step_rewards(self):
            return [float("nan"), None]

    row = score(Bad(), "1", "2")
    assert (row["is_score_valid"], row["step_rewards"]) == (False, None)


def test_values_that_add_up_to_infinity_are_a_failed_row(score):
    row = score(Number(), "1e308", "1e308")
    assert (row["is_score_valid"], row["score"]) == (False, None)


def test_a_failure_that_a_guard_dealt_with_is_told_beside_a_valid_score(score, caplog):
    rubric = WeightedSum([Guarded(Fails(), on_error="zero")], [0.5])
    with caplog.at_level(logging.CRITICAL, "guerdon.rubrics"):
        row = score(rubric, "1", "fail")
    assert (row["score"], row["is_score_valid"]) == (0.5, True)
    assert row["components"]["rubric_0"] == 0.0
    assert "rubric 'rubric_0.rubric': ValueError: no luck" in row["error"]


def test_a_failure_that_the_root_dealt_with_is_told_beside_a_valid_score(score, caplog):
    with caplog.at_level(logging.CRITICAL, "guerdon.rubrics"):
        row = score(Guarded(Fails(), on_error="zero"), "fail")
    assert (row["score"], row["is_score_valid"]) == (0.0, True)
    assert "ValueError: no luck" in row["error"]
    assert "rubric ''" not in row["error"]


def test_the_row_of_a_broken_line_says_which_line():
    with RubricScorer(Number()) as scorer:
        row = scorer.failed(RolloutError("no good", line=3))
    assert row["error"] == "line 3: RolloutError: no good"
    assert (row["id"], row["score"], row["is_score_valid"]) == (None, None, False)
    assert row["fingerprint"] == Number().fingerprint()


# From row to row


def test_rows_come_in_order_and_one_at_a_time(row):
    taken = []

    def rollouts():
        for i in range(5):
            taken.append(i)
            yield Rollout.from_row(row(str(i), id=i))

    rows = score_rollouts(Number(), rollouts())
    assert taken == []
    assert next(rows)["score"] == 0.0
    assert taken == [0]
    assert [r["id"] for r in rows] == [1, 2, 3, 4]


def test_the_rubric_is_reset_before_each_rollout(row):
    class Counts(Rubric):
        def reset(self):
            self._seen = 0

        def forward(self, action, observation):
            self._seen += 1
            return float(self._seen)

    rollouts = [Rollout.from_row(row("a", "b")), Rollout.from_row(row("c"))]
    rows = list(score_rollouts(Counts(), rollouts))
    assert [r["step_rewards"] for r in rows] == [[1.0, 2.0], [1.0]]


@pytest.mark.parametrize("kind", [Number, AsyncNumber])
def test_nothing_leaks_from_a_failed_row_to_the_next(row, kind):
    rubric = WeightedSum([kind(), Last(gamma=1.0)], [1.0, 1.0])
    rollouts = [Rollout.from_row(row(*turns)) for turns in ("12", "1x2", "12")]
    first, failed, again = score_rollouts(rubric, rollouts)
    assert failed["score"] is None
    assert first["step_rewards"] == [3.0, 4.0]
    assert again == {**first, "id": again["id"]}


def test_trees_that_dispatch_are_scored_by_whom_they_choose(score):
    class Dispatch(Rubric):
        def __init__(self):
            super().__init__()
            self.kinds = RubricDict({"a": Last(gamma=1.0), "b": as_rubric(lambda a, o: 0.25)})

        def forward(self, action, observation):
            return self.kinds["b" if action.content == "0" else "a"](action, observation)

    row = score(Dispatch(), "0", "3")
    assert (row["score"], row["step_rewards"]) == (3.25, [0.25, 3.0])
    assert row["components"]["kinds.a"] == 3.0


# Reward functions


@reward_function
def best(rollouts_messages, **kwargs):
    lengths = [len(messages[-1].text) for messages in rollouts_messages]
    return [float(each == max(lengths)) for each in lengths]


@reward_function
def first_fails(messages, id=None):
    return 1.0 / id


def test_what_scores_is_chosen_by_the_reward():
    assert isinstance(scorer_of(Number()), RubricScorer)
    assert isinstance(scorer_of(best, {"bonus": 1}), FunctionScorer)
    assert (scorer_of(best).takes_groups, scorer_of(first_fails).takes_groups) == (True, False)
    assert scorer_of(Number()).takes_groups is False


def test_a_rubric_takes_no_parameters():
    assert isinstance(scorer_of(Number(), {}), RubricScorer)
    with pytest.raises(InvalidArgumentError, match=r"has no parameters, got \['a', 'b'\]"):
        scorer_of(Number(), {"b": 1, "a": 2})


def test_functions_score_rollouts_and_failures_are_no_zeros(row):
    rollouts = [Rollout.from_row(row("x", id=i)) for i in (2, 0, 4)]
    rows = list(score_rollouts(first_fails, rollouts))
    assert [r["score"] for r in rows] == [0.5, None, 0.25]
    assert rows[1]["error"].startswith("ZeroDivisionError")


def test_groups_are_scored_together_and_one_at_a_time(row):
    taken = []

    def rollouts():
        for i, text in enumerate(["x", "xx", "xxx", "x"]):
            taken.append(i)
            yield Rollout.from_row(row(text, id=i, group=i // 2))

    rows = score_rollouts(best, rollouts())
    assert taken == []
    assert next(rows)["score"] == 0.0
    assert taken == [0, 1, 2]
    assert [r["score"] for r in rows] == [1.0, 1.0, 0.0]


def test_rollouts_without_a_group_are_scored_alone(row):
    rollouts = [Rollout.from_row(row(text)) for text in ("x", "xx")]
    assert [r["score"] for r in score_rollouts(best, rollouts)] == [1.0, 1.0]


def test_a_split_group_is_refused_after_the_rows_before(row):
    rollouts = [Rollout.from_row(row("x", group=group)) for group in ("g", "h", "g")]
    rows = score_rollouts(best, rollouts)
    assert [next(rows)["group"], next(rows)["group"]] == ["g", "h"]
    with pytest.raises(RolloutError, match="is split"):
        next(rows)


def test_a_pointwise_function_does_not_mind_split_groups(row):
    rollouts = [Rollout.from_row(row("x", id=1, group=group)) for group in ("g", "h", "g")]
    assert len(list(score_rollouts(first_fails, rollouts))) == 3


# Episodes that failed


FAILED = {"ended": "error", "error": "the policy at step 1: TimeoutError: too slow"}


@reward_function
def counts(messages):
    return float(len(messages))


@reward_function(mode="batch")
def together(rollouts_messages):
    return [float(len(rollouts_messages))] * len(rollouts_messages)


@pytest.mark.parametrize("reward", [counts, as_rubric(counts)], ids=["function", "rubric"])
def test_an_episode_that_failed_has_no_score_unless_asked(reward, row):
    rollouts = [
        Rollout.from_row(row("a", **columns)) for columns in ({}, FAILED, {"ended": "done"})
    ]
    rows = list(score_rollouts(reward, rollouts))
    assert [each["score"] for each in rows] == [1.0, None, 1.0]
    assert "the episode ended with an error: the policy at step 1" in rows[1]["error"]
    asked = score_rollouts(reward, rollouts, score_failed=True)
    assert [each["score"] for each in asked] == [1.0, 1.0, 1.0]


def test_an_episode_that_failed_is_compared_with_nobody(row):
    rollouts = [Rollout.from_row(row("a", group="g", **each)) for each in ({}, FAILED, {}, FAILED)]
    assert [each["score"] for each in score_rollouts(together, rollouts)] == [2.0, None, 2.0, None]
    alone = [Rollout.from_row(row("a", group="g", **FAILED))]
    assert [each["score"] for each in score_rollouts(together, alone)] == [None]
    asked = score_rollouts(together, rollouts, score_failed=True)
    assert [each["score"] for each in asked] == [4.0] * 4


def test_a_record_is_no_rollout_and_becomes_one():
    record = RolloutRecord("q-0", messages=[Message(role="assistant", content="a")], ended="done")
    with pytest.raises(InvalidArgumentError, match=r"record\.to_rollout\(\)"):
        list(score_rollouts(counts, [record]))
    assert [each["score"] for each in score_rollouts(counts, [record.to_rollout()])] == [1.0]


def test_what_fails_after_the_last_step_says_so(row):
    class Forgets(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

        def compute_step_rewards(self):
            raise ValueError("no credit today")

    [failed] = score_rollouts(Forgets(), [Rollout.from_row(row("a", "b"))])
    assert failed["error"] == "after the last step: ValueError: no credit today"


def test_a_step_that_fails_is_named_by_its_turn(row):
    def picky(action, observation):
        raise ValueError("no")

    [failed] = score_rollouts(as_rubric(picky), [Rollout.from_row(row("e", "a", first_turn=1))])
    assert failed["error"].startswith("step 1: ")
