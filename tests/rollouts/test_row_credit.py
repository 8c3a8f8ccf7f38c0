"""RowCredit: advantages in the rows of a group, the same as those of the aligner's way."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import EvaluateResult, StepOutput, reward_function
from guerdon.credit import ESTIMATORS
from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rollouts import FunctionScorer, RLDataAligner, apply_credit, score_rollouts
from guerdon.rollouts.crediting import CreditSettings, RowCredit
from guerdon.rubrics import ExponentialDiscountingTrajectoryRubric, WeightedSum, as_rubric
from guerdon.types import Rollout

# The options that an estimator requires.
REQUIRED = {"gdpo": {"weights": {"value": 1.0}, "normalize_batch": False}}
OF_FILES = sorted(set(ESTIMATORS.names()) - {"gae", "reinforce_pp"})


@reward_function
def recorded(messages, score=0.0, steps=None):
    """The score and the step rewards of the rollout."""
    if score is None:
        raise ValueError("no luck")
    outputs = None if steps is None else [
        StepOutput(step_index=turn, base_reward=reward, reason="why", metrics={"n": 1})
        for turn, reward in enumerate(steps) if reward is not None
    ]  # fmt: skip
    return EvaluateResult(score=score, step_outputs=outputs, metrics={"value": score})


def rollout(score, *states, id=None, group="g", steps=None):
    """A rollout with a turn in each state."""
    messages = []
    for turn, state in enumerate(states):
        messages.append({"role": "user", "content": state})
        messages.append({"role": "assistant", "content": f"turn {turn}"})
    row = {"id": id, "group": group, "score": score, "steps": steps, "messages": messages}
    return Rollout.from_row(row)


def credited(rollouts, method="gigpo", state_key="last", function=recorded, **options):
    with FunctionScorer(function) as scorer:
        rows = scorer.score_group(rollouts)
    RowCredit(CreditSettings(method, state_key, options)).add(
        list(zip(rollouts, rows, strict=True))
    )
    return rows


def advantages(rows):
    return [[step["advantage"] for step in row["steps"]] for row in rows]


def test_row_credit_gives_every_turn_an_advantage():
    rollouts = [rollout(1.0, "s", "l"), rollout(0.0, "s", "r")]
    rows = credited(rollouts, gamma=0.5, normalize="mean")
    assert rows[0]["steps"] == [
        {"step_index": 0, "base_reward": None, "advantage": 0.75, "return_to_go": 0.5, "anchor": 0},
        {"step_index": 1, "base_reward": None, "advantage": 0.5, "return_to_go": 1.0, "anchor": 1},
    ]
    assert advantages(rows) == [[0.75, 0.5], [-0.75, -0.5]]
    assert [row["notes"] for row in rows] == [[], []]
    assert [row["error"] for row in rows] == [None, None]


def test_row_credit_keeps_the_outputs_of_steps():
    [row] = credited([rollout(1.0, "s", "l", "l", steps=[0.5, None, 0.25])])
    first, second, third = row["steps"]
    assert (first["base_reward"], first["reason"], first["metrics"]) == (0.5, "why", {"n": 1})
    assert (second["base_reward"], "reason" in second) == (None, False)
    assert [step["return_to_go"] for step in row["steps"]] == [0.75, 0.25, 0.25]
    assert third["base_reward"] == 0.25


def test_row_credit_has_no_anchors_for_methods_without_states():
    rows = credited([rollout(1.0, "s"), rollout(0.0, "s")], "grpo", normalize="mean")
    assert advantages(rows) == [[0.5], [-0.5]]
    assert not any("anchor" in step for row in rows for step in row["steps"])


def test_row_credit_skips_a_row_without_a_score():
    rows = credited([rollout(1.0, "s"), rollout(None, "s", "s"), rollout(0.0, "s")])
    assert rows[1]["error"].startswith("ValueError: no luck")
    assert advantages(rows)[1] == [None, None]
    assert [step["return_to_go"] for step in rows[1]["steps"]] == [None, None]
    assert not any("anchor" in step for step in rows[1]["steps"])
    assert advantages(rows)[::2] == advantages(credited([rollout(1.0, "s"), rollout(0.0, "s")]))


def test_row_credit_notes_a_group_of_one():
    [row] = credited([rollout(1.0, "s", "l")])
    assert advantages([row]) == [[0.0, 0.0]]
    assert row["notes"] == ["its group has no other valid score, so that nothing compares with it"]


def test_row_credit_notes_a_rollout_without_a_group():
    [row] = credited([rollout(1.0, "s", group=None)])
    assert row["notes"] == ["it has no group, so that nothing compares with it"]
    assert advantages([row]) == [[0.0]]


def test_row_credit_of_a_group_without_scores_has_no_advantages():
    rows = credited([rollout(None, "s"), rollout(None, "s")])
    assert advantages(rows) == [[None], [None]]


def test_row_credit_distinguishes_rollouts_with_the_same_id():
    rows = credited([rollout(1.0, "s", id="a"), rollout(0.0, "s", id="a")], "grpo")
    assert advantages(rows)[0][0] > 0 > advantages(rows)[1][0]


def test_row_credit_credits_rows_of_a_rubric():
    class Last(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            return float(trajectory[-1][0].content == "turn 1")

    rubric = WeightedSum([Last(gamma=0.5), as_rubric(lambda a, o: 0.25)], [1.0, 1.0])
    rollouts = [rollout(0.0, "s", "l"), rollout(0.0, "s")]
    rows = list(score_rollouts(rubric, rollouts))
    assert [row["step_rewards"] for row in rows] == [[0.75, 1.25], [0.25]]
    RowCredit(CreditSettings("gigpo", options={"normalize": "mean"})).add(
        list(zip(rollouts, rows, strict=True))
    )
    assert [[step["return_to_go"] for step in row["steps"]] for row in rows] == [
        [2.0, 1.25], [0.25],
    ]  # fmt: skip
    assert rows[0]["steps"][0]["advantage"] > 0 > rows[1]["steps"][0]["advantage"]


@reward_function
def measured(messages, score=0.0, steps=None):
    """The score and measurements of the rollout."""
    return EvaluateResult(score=score, metrics=steps or {})


def test_row_credit_gdpo_reads_the_components_of_a_reward_function():
    given = {"right": 1.0, "short": 4.0}, {"right": 0.0}, {"right": 0.5, "short": 2.0}
    rows = credited(
        [rollout(0.5, "s", steps=metrics) for metrics in given],
        "gdpo",
        function=measured,
        weights={"right": 1.0, "short": 1.0, "polite": 1.0},
        normalize_batch=False,
    )
    # right: mean 1/2, σ 1/2; short of the first and the last: σ √2
    found = [advantage for [advantage] in advantages(rows)]
    assert found == pytest.approx([0.999998 + 0.7071063, -0.999998, -0.7071063], abs=1e-6)
    note = "no rollout of its group has the component 'polite', which has a weight"
    assert all(note in row["notes"] for row in rows)


def test_row_credit_gdpo_notes_a_rollout_without_any_component():
    rollouts = [rollout(0.5, "s", steps={"right": 1.0}), rollout(0.0, "s")]
    options = {"weights": {"right": 1.0}, "normalize_batch": False}
    rows = credited(rollouts, "gdpo", function=measured, **options)
    for row in rows:
        assert any("none of the components ['right']" in note for note in row["notes"])
        assert "steps" not in row


def test_row_credit_gdpo_requires_weights_and_normalizes_no_batch():
    with pytest.raises(InvalidArgumentError, match="gdpo requires the option 'weights'"):
        RowCredit(CreditSettings("gdpo"))
    with pytest.raises(InvalidArgumentError, match="use normalize_batch=false here"):
        RowCredit(CreditSettings("gdpo"), weights={"value": 1.0})


def test_row_credit_gdpo_takes_the_components_of_episodes_of_several_steps():
    rollouts = [rollout(1.0, "s", "s"), rollout(0.0, "s")]
    rubric = WeightedSum([as_rubric(lambda a, o: float(a.turn + 1))], [1.0])
    rows = list(score_rollouts(rubric, rollouts))
    assert [row["components"]["rubric_0"] for row in rows] == [3.0, 1.0]
    settings = CreditSettings("gdpo", options={"normalize_batch": False})
    RowCredit(settings, weights={"rubric_0": 1.0}).add(list(zip(rollouts, rows, strict=True)))
    assert [row["components"]["rubric_0"] for row in rows] == [3.0, 1.0]
    assert [row["steps"][0]["advantage"] for row in rows] == pytest.approx(
        [0.5**0.5, -(0.5**0.5)], abs=1e-6
    )


def test_row_credit_accepts_lone_surrogates():
    parts = [{"type": "text", "text": "\ud800"}]
    rollouts = [
        Rollout.from_row({"group": "\udfff", "score": score, "messages": [
            {"role": "user", "content": parts}, {"role": "assistant", "content": parts}]})
        for score in (1.0, 0.0)
    ]  # fmt: skip
    assert advantages(credited(rollouts, state_key="history"))[0][0] > 0


# The same as the aligner's way

SCORES = st.none() | st.sampled_from([0.0, 0.5, 1.0, -2.0])
ROLLOUTS = st.lists(
    st.tuples(
        SCORES,
        st.lists(st.sampled_from("st"), min_size=1, max_size=3),
        st.none() | st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), max_size=3),
    ),
    min_size=1,
    max_size=5,
)
KEYS = st.sampled_from(["last", "last-2", "history"])


def made(drawn, group="g"):
    return [
        rollout(score, *states, id=f"{group}{place}", group=group,
                steps=None if steps is None else steps[: len(states)])
        for place, (score, states, steps) in enumerate(drawn)
    ]  # fmt: skip


def aligned(rollouts):
    """The same rollouts by the aligner."""
    results = [
        recorded(each.messages, score=each.columns["score"], steps=each.columns["steps"])
        for each in rollouts
    ]
    return RLDataAligner(strict=True).align_data_for_rl_processing(
        results, {each.id: each.to_step_data() for each in rollouts}, [each.id for each in rollouts]
    )


@pytest.mark.parametrize("method", OF_FILES)
@settings(max_examples=25)
@given(drawn=ROLLOUTS, other=ROLLOUTS, key=KEYS)
def test_row_credit_equals_the_credit_of_aligned_steps(method, drawn, other, key):
    groups, options = (made(drawn), made(other, "h")), REQUIRED.get(method, {})
    try:
        batch = aligned([*groups[0], *groups[1]])
        apply_credit(batch, method, state_key=key, **options)
    except ValueError:
        batch = None
    rows = [row for group in groups for row in credited(group, method, key, **options)]
    if batch is None:
        assert any("no credit" in note for row in rows for note in row["notes"])
        return
    found = [
        [(step["base_reward"], step["advantage"], step["return_to_go"]) for step in row["steps"]]
        for row in rows
    ]
    assert found == [
        [
            (step.base_reward, approximately(step.advantage), approximately(step.return_to_go))
            for step in each.steps
        ]
        for each in batch
    ]


def approximately(value):
    return None if value is None else pytest.approx(value, abs=1e-9)


@settings(max_examples=50)
@given(drawn=ROLLOUTS, key=KEYS, data=st.data())
def test_row_credit_ignores_the_order_of_rows(drawn, key, data):
    order = data.draw(st.permutations(range(len(drawn))))
    rollouts = made(drawn)
    rows = credited(rollouts, state_key=key, gamma=0.9)
    shuffled = credited([rollouts[place] for place in order], state_key=key, gamma=0.9)
    assert advantages(shuffled) == [
        [approximately(value) for value in advantages(rows)[place]] for place in order
    ]


# Failures


def key_spec(tmp_path, body):
    path = tmp_path / "keys.py"
    path.write_text(f"def key(step):\n    {body}\n\nCONSTANT = 3\n")
    return f"{path}:key"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "raise LookupError('no such room')",
            "no credit: CreditError: the state key raised LookupError: no such room",
        ),
        (
            "return object()",
            "no credit: CreditError: states can't be compared: object in rows 0, 1",
        ),
        (
            "return lambda: 1",
            "no credit: CreditError: states can't be compared: function in rows",
        ),
    ],
    ids=["raises", "object", "function"],
)
def test_row_credit_notes_a_state_key_that_raises_and_keeps_the_scores(tmp_path, body, message):
    rollouts = [rollout(1.0, "s", "l", steps=[0.5]), rollout(0.5, "s")]
    with FunctionScorer(recorded) as scorer:
        rows = scorer.score_group(rollouts)
    before = copy.deepcopy(rows)
    RowCredit(CreditSettings("gigpo", key_spec(tmp_path, body))).add(
        list(zip(rollouts, rows, strict=True))
    )
    for row, was in zip(rows, before, strict=True):
        assert any(note.startswith(message) for note in row["notes"])
        assert {**row, "notes": None} == {**was, "notes": None}


def test_row_credit_loads_a_state_key_function(tmp_path):
    spec = key_spec(tmp_path, "return step.system_step_index")
    rows = credited([rollout(1.0, "s", "l"), rollout(0.0, "t", "r")], state_key=spec)
    assert [[step["anchor"] for step in row["steps"]] for row in rows] == [[0, 1], [0, 1]]


def test_row_credit_writes_a_line_if_the_state_key_fails_on_invalid_rows(tmp_path):
    spec = key_spec(tmp_path, "return object() if step.is_done else 1")
    rows = credited([rollout(None, "s"), rollout(1.0, "s")], state_key=spec)
    assert rows[0]["error"].startswith("ValueError: no luck")
    assert any("no credit" in note and "row 1" in note for note in rows[1]["notes"])


def test_row_credit_notes_infinite_returns(tmp_path):
    rows = credited([rollout(1.0, "s", "l", steps=[1e308, 1e308]), rollout(0.0, "s")])
    assert all("no credit: CreditError" in "".join(row["notes"]) for row in rows)
    assert [row["score"] for row in rows] == [1.0, 0.0]


# Settings


@pytest.mark.parametrize("method", ["reinforce_pp", "gae"])
def test_row_credit_rejects_methods_that_files_can_not_support(method):
    with pytest.raises(InvalidArgumentError, match=rf"{method} .* in the trainer"):
        RowCredit(CreditSettings(method))


@pytest.mark.parametrize(
    ("method", "key", "options"),
    [
        ("ppo", "last", {}),
        ("gigpo", "first", {}),
        ("gigpo", "", {}),
        ("gigpo", "last", {"gama": 1.0}),
        ("grpo", "last", {"omega": 1.0}),
        ("gigpo", "last", {"gamma": 2.0}),
        ("gigpo", "last", {"gamma": "x"}),
        ("gigpo", "last", {"normalize": "std"}),
        ("gigpo", "last", {"group": "x"}),
        ("gigpo", "last", {"state_key": "history"}),
        ("gigpo", "last", {"method": "grpo"}),
        ("gigpo", "last", {"batch": []}),
        ("gigpo", "last", {"rewards": []}),
        ("gigpo", "math:pi", {}),
    ],
    ids=repr,
)
def test_row_credit_rejects_invalid_settings_before_scoring(method, key, options):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        RowCredit(CreditSettings(method, key, options))
    assert type(caught.value).__module__ == "guerdon.errors"


def test_row_credit_rejects_a_state_key_that_does_not_load(tmp_path):
    with pytest.raises(LoadError, match="there is no file"):
        RowCredit(CreditSettings("gigpo", f"{tmp_path}/absent.py:key"))
    with pytest.raises(LoadError, match="has no 'kee'"):
        RowCredit(CreditSettings("gigpo", key_spec(tmp_path, "return 1").replace(":key", ":kee")))


def test_row_credit_identity_distinguishes_settings():
    identities = [
        RowCredit(CreditSettings(*each)).identity
        for each in (("gigpo",), ("grpo",), ("gigpo", "history"), ("gigpo", "last", {"gamma": 0.9}))
    ]
    assert len({json.dumps(each) for each in identities}) == 4


def test_row_credit_notes_repeated_ids_in_a_group():
    rows = credited(
        [rollout(1.0, "s", id="q"), rollout(0.0, "s", id="q"), rollout(0.0, "s", id="r")]
    )
    noted = ["another rollout of its group has the same id" in row["notes"] for row in rows]
    assert noted == [True, True, False]
