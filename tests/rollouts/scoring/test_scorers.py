"""RubricScorer and score_rollouts: one row for each rollout."""

import asyncio
import logging
import threading

import anyio
import pytest

from guerdon import reward_function
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts import FunctionScorer, RolloutRecord, RubricScorer, score_rollouts
from guerdon.rollouts.scoring.scorers import AHEAD, TOGETHER, scorer_of
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
from guerdon.rubrics.copies import ROLLOUTS
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


def test_rubric_scorer_row_has_exactly_these_keys(score):
    rubric = Number()
    assert list(score(rubric, "0.5")) == KEYS
    assert list(score(rubric, "x")) == KEYS
    with RubricScorer(rubric) as scorer:
        assert list(scorer.failed(RolloutError("no", line=3))) == KEYS


def test_rubric_scorer_row_of_one_step(score):
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


def test_rubric_scorer_row_of_a_leaf_has_no_components(score):
    assert score(Number(), "0.5", "0.25")["components"] == {}


def test_rubric_scorer_score_is_the_sum_of_the_step_scores(score):
    row = score(Number(), "0.5", "-0.125", "2")
    assert (row["score"], row["step_rewards"]) == (2.375, [0.5, -0.125, 2.0])


def test_rubric_scorer_components_are_added_up_over_the_steps(score):
    row = score(WeightedSum([Number()], [1.0]), "0.5", "0.25", "0.75")
    assert row["components"] == {"rubric_0": 1.5}
    assert row["step_components"] == [{"rubric_0": 0.5}, {"rubric_0": 0.25}, {"rubric_0": 0.75}]


def test_rubric_scorer_component_counts_at_the_steps_that_reach_it(score):
    rubric = Sequential(Gate(Number(), 0.5), Number())
    row = score(rubric, "1", "0.5", "0.25")
    assert row["components"] == {"rubric_0": 1.5, "rubric_0.rubric": 1.75, "rubric_1": 1.5}
    assert row["score"] == 1.5
    assert row["stopped_by"] == ["rubric_0"]  # at the last step


def test_rubric_scorer_uses_the_step_rewards_of_trajectory_rubrics(score):
    row = score(Last(gamma=0.5), "0", "0", "4")
    assert (row["score"], row["step_rewards"]) == (4.0, [1.0, 2.0, 4.0])


def test_rubric_scorer_composes_step_rewards_through_the_tree(score):
    row = score(WeightedSum([Number(), Last(gamma=0.5)], [1.0, 10.0]), "1", "2")
    assert row["step_rewards"] == [1.0 + 10.0, 2.0 + 20.0]
    assert row["score"] == 1.0 + (2.0 + 20.0)


def test_rubric_scorer_passes_columns_and_following_messages(score):
    def reward(action, observation):
        truth = observation.metadata["ground_truth"]
        return float(truth == action.message and observation.done)

    assert score(reward, "41", "42", ground_truth="42")["step_rewards"] == [0.0, 1.0]


def test_rubric_scorer_returns_floats_for_integers(score):
    values = score(lambda a, o: 1, "x", "y")
    assert values["score"] == 2.0
    assert {type(value) for value in (values["score"], *values["step_rewards"])} == {float}


# Async


def test_rubric_scorer_scores_async_trees_alike(score):
    turns = "0.5", "0.25", "0.75"
    sync = score(WeightedSum([Number(), Last()], [0.5, 0.5]), *turns)
    mixed = score(WeightedSum([AsyncNumber(), Last()], [0.5, 0.5]), *turns)
    assert {**mixed, "fingerprint": None} == {**sync, "fingerprint": None}


def test_rubric_scorer_uses_one_event_loop(row):
    loops = set()

    async def reward(action, observation):
        loops.add(anyio.lowlevel.current_token())
        return 0.5

    rollouts = [Rollout.from_row(row("a", "b")) for _ in range(3)]
    assert [r["score"] for r in score_rollouts(as_rubric(reward), rollouts)] == [1.0] * 3
    assert len(loops) == 1


def test_rubric_scorer_scores_an_async_rubric_inside_a_running_loop(score):
    async def inside():
        return score(AsyncNumber(), "2")["score"]

    assert asyncio.run(inside()) == 2.0


# Failures


def test_rubric_scorer_failure_is_not_zero(score):
    rubric = WeightedSum([Number(), Fails()], [0.5, 0.5])
    row = score(rubric, "1", "2", "fail")
    assert row["score"] is None
    assert row["is_score_valid"] is False
    assert row["step_rewards"] is None


@pytest.mark.parametrize(
    ("turns", "step"), [(["fail"], 0), (["1", "fail"], 1), (["1", "fail", "1", "fail"], 1)]
)
def test_rubric_scorer_error_names_the_step_and_the_rubric(score, turns, step):
    row = score(WeightedSum([Gate(Fails())], [1.0]), *turns)
    assert row["error"] == f"step {step}: rubric 'rubric_0.rubric': ValueError: no luck"


def test_rubric_scorer_error_of_the_root_names_the_step(score):
    assert score(Fails(), "1", "fail")["error"] == "step 1: ValueError: no luck"


def test_rubric_scorer_error_of_an_async_tree_names_the_step_and_the_rubric(score):
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
def test_rubric_scorer_error_has_the_text_of_the_exception(score, error, text, inside):
    row = score(Sequential(Fails(error)) if inside else Fails(error), "fail")
    assert row["error"] == f"step 0: rubric 'rubric_0': {text}" if inside else f"step 0: {text}"


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


def test_rubric_scorer_fails_a_row_whose_exception_has_no_text(score):
    row = score(Sequential(Fails(Mute())), "fail")
    assert row["score"] is None
    assert "Mute" in row["error"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "1", 1j])
def test_rubric_scorer_fails_a_row_whose_score_is_not_a_number(score, value):
    row = score(Sequential(as_rubric(lambda a, o: value)), "x")
    assert row["score"] is None
    assert row["error"].startswith("step 0: rubric 'rubric_0': InvalidScoreError: ")


def test_rubric_scorer_failed_row_keeps_known_components(score):
    row = score(Sequential(Number(), Fails()), "1", "2", "fail")
    assert row["components"] == {"rubric_0": 3.0, "rubric_1": 2.0}  # of all steps until then
    row = score(WeightedSum([as_rubric(lambda a, o: 0.5), Fails()], [1.0, 1.0]), "1", "fail")
    assert row["components"] == {"rubric_0": 1.0, "rubric_1": 1.0}


def test_rubric_scorer_fails_a_row_whose_reset_raises(row):
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


def test_rubric_scorer_fails_a_row_whose_step_rewards_raise(score):
    class Bad(Last):
        def compute_step_rewards(self):
            raise ArithmeticError("too many steps")

    row = score(Bad(), "1", "2")
    assert (row["score"], row["step_rewards"]) == (None, None)
    assert "ArithmeticError: too many steps" in row["error"]


def test_rubric_scorer_checks_step_rewards(score):
    class Bad(Last):
        def compute_step_rewards(self):
            return [float("nan"), None]

    row = score(Bad(), "1", "2")
    assert (row["is_score_valid"], row["step_rewards"]) == (False, None)


def test_rubric_scorer_fails_a_row_whose_sum_is_infinite(score):
    row = score(Number(), "1e308", "1e308")
    assert (row["is_score_valid"], row["score"]) == (False, None)


def test_rubric_scorer_reports_a_failure_handled_by_a_guard(score, caplog):
    rubric = WeightedSum([Guarded(Fails(), on_error="zero")], [0.5])
    with caplog.at_level(logging.CRITICAL, "guerdon.rubrics"):
        row = score(rubric, "1", "fail")
    assert (row["score"], row["is_score_valid"]) == (0.5, True)
    assert row["components"]["rubric_0"] == 1.0  # of the first step; the other is 0
    assert "rubric 'rubric_0.rubric': ValueError: no luck" in row["error"]


def test_rubric_scorer_reports_a_failure_handled_by_the_root(score, caplog):
    with caplog.at_level(logging.CRITICAL, "guerdon.rubrics"):
        row = score(Guarded(Fails(), on_error="zero"), "fail")
    assert (row["score"], row["is_score_valid"]) == (0.0, True)
    assert "ValueError: no luck" in row["error"]
    assert "rubric ''" not in row["error"]


def test_rubric_scorer_failed_names_the_line():
    with RubricScorer(Number()) as scorer:
        row = scorer.failed(RolloutError("no good", line=3))
    assert row["error"] == "line 3: RolloutError: no good"
    assert (row["id"], row["score"], row["is_score_valid"]) == (None, None, False)
    assert row["fingerprint"] == Number().fingerprint()


# From row to row


def test_score_rollouts_yields_rows_in_order_one_at_a_time(row):
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


def meeting(base, count):
    """An async rubric whose score is known when `count` rollouts have come to it."""
    waiting, together = [], asyncio.Event()

    async def number(text):
        waiting.append(text)
        if len(waiting) == count:
            together.set()
        await asyncio.wait_for(together.wait(), 10)
        return float(text)

    class Meets(base):
        async def forward(self, action, observation):
            return await number(action.content)

    class MeetsAtTheEnd(base):
        async def score_trajectory(self, trajectory):
            return await number(trajectory[-1][0].content)

    return MeetsAtTheEnd() if base is Last else Meets()


@pytest.mark.parametrize("base", [Number, Last])
def test_score_rollouts_scores_rollouts_of_an_async_tree_concurrently(row, base):
    texts = [str(number) if number != 3 else "three" for number in range(40)]
    tree = WeightedSum([meeting(base, ROLLOUTS)], [0.5])
    turns = ["0"] if base is Last else []
    rollouts = [Rollout.from_row(row(*turns, text, id=text)) for text in texts]
    rows = list(score_rollouts(tree, rollouts))
    assert [each["id"] for each in rows] == texts
    invalid = [each for each in rows if not each["is_score_valid"]]
    assert [(each["id"], each["score"]) for each in invalid] == [("three", None)]
    assert "ValueError: could not convert" in invalid[0]["error"]
    for each in rows:
        if each["is_score_valid"]:
            assert each["score"] == sum(each["step_rewards"][-1:]) == float(each["id"]) / 2


@pytest.mark.parametrize("base", [Number, Last])
def test_score_rollouts_waits_for_32_rubrics_with_forward_async_at_a_time(row, base):
    class Judge(Number):
        forward_async = type(meeting(Number, ROLLOUTS)).forward

    rollouts = [Rollout.from_row(row(str(number), id=number)) for number in range(40)]
    rows = list(score_rollouts(Sequential(Judge(), base()), rollouts))
    assert [(each["id"], each["score"]) for each in rows] == [(n, float(n)) for n in range(40)]


def test_rubric_scorer_awaits_a_rubric_with_forward_async_inside_a_running_loop(row):
    class Judge(Number):
        forward_async = type(meeting(Number, 3)).forward

    async def inside():
        with RubricScorer(Judge()) as scorer:
            return scorer.score_group([Rollout.from_row(row(text)) for text in "345"])

    assert [each["score"] for each in asyncio.run(inside())] == [3.0, 4.0, 5.0]


def test_score_rollouts_waits_for_32_async_reward_functions_at_a_time(row):
    waiting, together = [], asyncio.Event()

    @reward_function
    async def meets(messages):
        waiting.append(messages)
        if len(waiting) == ROLLOUTS:
            together.set()
        await asyncio.wait_for(together.wait(), 10)
        return float(messages[-1].text)

    texts = [str(number) if number != 3 else "three" for number in range(40)]
    rows = list(score_rollouts(meets, [Rollout.from_row(row(text, id=text)) for text in texts]))
    assert [each["score"] for each in rows] == [
        None if text == "three" else float(text) for text in texts
    ]


@pytest.mark.parametrize("base", [Number, Last])
def test_score_rollouts_scores_others_while_one_waits_and_keeps_the_order(row, base):
    others = threading.Event()
    scored = []

    class Slow(Number):
        async def forward(self, action, observation):
            if action.content == "0":
                await asyncio.to_thread(others.wait, 20)
            else:
                scored.append(action.content)
                if len(scored) == AHEAD - 1:
                    others.set()
            return float(action.content)

    given = []

    def rollouts():
        for number in range(AHEAD + 40):
            given.append(number)
            yield Rollout.from_row(row(str(number), id=number))

    rows = score_rollouts(Sequential(Slow(), base()), rollouts())
    assert next(rows)["id"] == 0
    assert len(given) == AHEAD  # of which the others were scored meanwhile
    assert [each["id"] for each in rows] == list(range(1, AHEAD + 40))


def test_score_rollouts_that_is_closed_cancels_what_it_has_started(row):
    begun, ended, all_begun = [], [], asyncio.Event()

    class Endless(Number):
        async def forward(self, action, observation):
            if action.content == "0":
                await all_begun.wait()
                return 0.0
            begun.append(action.content)
            if len(begun) == 3:
                all_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(action.content)

    texts = ["0"] * TOGETHER + ["1", "2", "3"]
    rows = score_rollouts(Endless(), [Rollout.from_row(row(text)) for text in texts])
    assert next(rows)["score"] == 0.0
    rows.close()
    assert sorted(ended) == ["1", "2", "3"]


def test_score_rollouts_resets_the_rubric_before_each_rollout(row):
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
def test_score_rollouts_leaks_nothing_from_a_failed_row(row, kind):
    rubric = WeightedSum([kind(), Last(gamma=1.0)], [1.0, 1.0])
    rollouts = [Rollout.from_row(row(*turns)) for turns in ("12", "1x2", "12")]
    first, failed, again = score_rollouts(rubric, rollouts)
    assert failed["score"] is None
    assert first["step_rewards"] == [3.0, 4.0]
    assert again == {**first, "id": again["id"]}


def test_rubric_scorer_scores_dispatching_trees(score):
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


def test_scorer_of_chooses_by_the_reward():
    assert isinstance(scorer_of(Number()), RubricScorer)
    assert isinstance(scorer_of(best, {"bonus": 1}), FunctionScorer)
    assert (scorer_of(best).takes_groups, scorer_of(first_fails).takes_groups) == (True, False)
    assert scorer_of(Number()).takes_groups is False


def test_scorer_of_rejects_parameters_for_a_rubric():
    assert isinstance(scorer_of(Number(), {}), RubricScorer)
    with pytest.raises(InvalidArgumentError, match=r"has no parameters, got \['a', 'b'\]"):
        scorer_of(Number(), {"b": 1, "a": 2})


def test_score_rollouts_with_functions_makes_failures_invalid(row):
    rollouts = [Rollout.from_row(row("x", id=i)) for i in (2, 0, 4)]
    rows = list(score_rollouts(first_fails, rollouts))
    assert [r["score"] for r in rows] == [0.5, None, 0.25]
    assert rows[1]["error"].startswith("ZeroDivisionError")


def test_score_rollouts_scores_groups_together_one_at_a_time(row):
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


def test_score_rollouts_scores_rollouts_without_a_group_alone(row):
    rollouts = [Rollout.from_row(row(text)) for text in ("x", "xx")]
    assert [r["score"] for r in score_rollouts(best, rollouts)] == [1.0, 1.0]


def test_score_rollouts_rejects_a_split_group_after_the_rows_before(row):
    rollouts = [Rollout.from_row(row("x", group=group)) for group in ("g", "h", "g")]
    rows = score_rollouts(best, rollouts)
    assert [next(rows)["group"], next(rows)["group"]] == ["g", "h"]
    with pytest.raises(RolloutError, match="is split"):
        next(rows)


def test_score_rollouts_accepts_split_groups_for_pointwise_functions(row):
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
def test_score_rollouts_skips_failed_episodes_unless_score_failed(reward, row):
    rollouts = [
        Rollout.from_row(row("a", **columns)) for columns in ({}, FAILED, {"ended": "done"})
    ]
    rows = list(score_rollouts(reward, rollouts))
    assert [each["score"] for each in rows] == [1.0, None, 1.0]
    assert "the episode ended with an error: the policy at step 1" in rows[1]["error"]
    asked = score_rollouts(reward, rollouts, score_failed=True)
    assert [each["score"] for each in asked] == [1.0, 1.0, 1.0]


def test_score_rollouts_compares_nothing_with_a_failed_episode(row):
    rollouts = [Rollout.from_row(row("a", group="g", **each)) for each in ({}, FAILED, {}, FAILED)]
    assert [each["score"] for each in score_rollouts(together, rollouts)] == [2.0, None, 2.0, None]
    alone = [Rollout.from_row(row("a", group="g", **FAILED))]
    assert [each["score"] for each in score_rollouts(together, alone)] == [None]
    asked = score_rollouts(together, rollouts, score_failed=True)
    assert [each["score"] for each in asked] == [4.0] * 4


def test_score_rollouts_requires_rollouts_instead_of_records():
    record = RolloutRecord("q-0", messages=[Message(role="assistant", content="a")], ended="done")
    with pytest.raises(InvalidArgumentError, match=r"record\.to_rollout\(\)"):
        list(score_rollouts(counts, [record]))
    assert [each["score"] for each in score_rollouts(counts, [record.to_rollout()])] == [1.0]


def test_rubric_scorer_error_after_the_last_step_is_named(row):
    class Forgets(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

        def compute_step_rewards(self):
            raise ValueError("no credit today")

    [failed] = score_rollouts(Forgets(), [Rollout.from_row(row("a", "b"))])
    assert failed["error"] == "after the last step: ValueError: no credit today"


def test_rubric_scorer_error_names_the_turn(row):
    def picky(action, observation):
        raise ValueError("no")

    [failed] = score_rollouts(as_rubric(picky), [Rollout.from_row(row("e", "a", first_turn=1))])
    assert failed["error"].startswith("step 1: ")


# Trees, and what stopped a row


def rollout_of(*turns):
    return Rollout.from_row(
        {"messages": [{"role": "assistant", "content": turn} for turn in turns]}
    )


def test_rubric_scorer_rows_name_the_gates_that_scored_0():
    scorer = RubricScorer(Sequential(Gate(Number()), Gate(Number(), threshold=2.0), Number()))
    rows = {turn: scorer.score(rollout_of(turn)) for turn in ("0", "1", "2", "word")}
    assert rows["0"]["stopped_by"] == ["rubric_0"]
    assert rows["1"]["stopped_by"] == ["rubric_1"]
    assert "stopped_by" not in rows["2"]
    assert "stopped_by" not in rows["word"]  # it failed
    assert RubricScorer(Gate(Number())).score(rollout_of("0"))["stopped_by"] == [""]


@pytest.mark.parametrize("kind", [Number, AsyncNumber])
def test_rubric_scorer_with_trees_has_the_score_of_every_rubric(kind):
    rubric = WeightedSum([kind(), Fails()], [0.25, 0.75])
    with RubricScorer(rubric, keeps_trees=True) as scorer, RubricScorer(rubric) as plain:
        rows = [scorer.score(rollout_of(*turns)) for turns in (["2", "4"], ["2", "fail"])]
        without = [plain.score(rollout_of(*turns)) for turns in (["2", "4"], ["2", "fail"])]
    trees = [row.pop("trees") for row in rows]
    assert rows == without
    assert [[tree["status"] for tree in each] for each in trees] == [
        ["scored", "scored"],
        ["scored", "failed"],
    ]
    first = trees[0][0]
    assert (first["name"], first["value"]) == ("", rows[0]["step_rewards"][0])
    assert [(each["name"], each["weight"]) for each in first["children"]] == [
        ("rubric_0", 0.25),
        ("rubric_1", 0.75),
    ]
    failed = trees[1][1]
    assert "value" not in failed
    assert rows[1]["error"].endswith(failed["error"])
