"""apply_credit: advantages on aligned steps, or nothing at all."""

import copy

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from guerdon import EvaluateResult, Message, StepData, StepOutput
from guerdon.credit import ESTIMATORS, StepBatch, gigpo
from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.rollouts import RLDataAligner, apply_credit, system_apply_gigpo_to_batch_steps
from guerdon.rollouts.alignment import AlignedBatch, AlignedRollout
from guerdon.rollouts.json_forms import group_key


def rollout(name, score, *states, rewards=(), group=None, valid=True, values=()):
    """A rollout with a step for each state; the state is the message of the user."""
    steps, history = [], []
    for turn, state in enumerate(states):
        turn_messages = ("user", state), ("assistant", "x")
        history = history + [Message(role=role, content=text) for role, text in turn_messages]
        step = StepData(
            system_step_index=turn,
            step_info={"assistant_turn_index": turn},
            resulting_messages_history=history,
            action_taken={"move": turn},
            base_reward=rewards[turn] if turn < len(rewards) else None,
            policy_value_estimate=values[turn] if turn < len(values) else None,
        )
        steps.append(step)
    return AlignedRollout(name, steps, score, valid, group)


def filled(rollouts):
    return [[(step.advantage, step.return_to_go) for step in each.steps] for each in rollouts]


def advantages(rollouts):
    return [[step.advantage for step in each.steps] for each in rollouts]


def untouched(rollouts):
    return all(pair == (None, None) for each in filled(rollouts) for pair in each)


# What is filled in


def test_apply_credit_gigpo_compares_scores_and_steps_in_one_state():
    won, lost = rollout("a", 1.0, "s", "l"), rollout("b", 0.0, "s", "r")
    credit = apply_credit([won, lost], gamma=0.5, normalize="mean")
    assert filled([won, lost]) == [[(0.75, 0.5), (0.5, 1.0)], [(-0.75, 0.0), (-0.5, 0.0)]]
    assert credit.advantage.tolist() == [0.75, 0.5, -0.75, -0.5]
    assert credit.anchor.tolist() == [0, 1, 0, 2]


def test_apply_credit_equals_the_estimator_on_the_same_columns():
    rollouts = [
        rollout("a", 1.0, "s", "l", "s", rewards=(0.5, None, 0.25), group=1),
        rollout("b", -1.0, "s", group=1),
        rollout("c", 0.5, "t", "t", group=2),
        rollout("d", 0.0, "t", rewards=(0.125,), group=2),
    ]
    credit = apply_credit(rollouts, omega=0.5, gamma=0.9, joint="convex")
    nan = float("nan")
    columns = StepBatch.from_arrays(
        [0.5, nan, 0.25, nan, nan, nan, 0.125],
        group=[1, 1, 1, 1, 2, 2, 2],
        trajectory=list("aaabccd"),
        step=[0, 1, 2, 0, 0, 1, 0],
        state=["s", "l", "s", "s", "t", "t", "t"],
        episode_score={"a": 1.0, "b": -1.0, "c": 0.5, "d": 0.0},
    )
    expected = gigpo(columns, omega=0.5, gamma=0.9, joint="convex")
    assert credit.advantage.tolist() == expected.advantage.tolist()
    flat = [pair for each in filled(rollouts) for pair in each]
    assert flat == list(zip(expected.advantage.tolist(), expected.returns.tolist(), strict=True))


@pytest.mark.parametrize("method", ESTIMATORS.names())
def test_apply_credit_every_method_fills_every_step(method):
    rollouts = [
        rollout(name, score, "s", "l", rewards=(0.5, score), group=1, values=(0.25, 0.5))
        for name, score in (("a", 1.0), ("b", 0.0), ("c", 0.5))
    ]
    for each in rollouts:
        each.components = {"right": each.score}
    credit = apply_credit(rollouts, method, **{"gdpo": {"weights": {"right": 1.0}}}.get(method, {}))
    assert np.isfinite(credit.advantage).all()
    assert [value for each in advantages(rollouts) for value in each] == credit.advantage.tolist()
    assert all(type(value) is float for each in filled(rollouts) for pair in each for value in pair)
    assert any(value != 0.0 for each in advantages(rollouts) for value in each)


def test_apply_credit_gdpo_reads_the_metrics_of_results():
    steps = {name: rollout(name, None, "s").steps for name in "abcd"}
    batch = RLDataAligner().align_data_for_rl_processing(
        [
            EvaluateResult(score=1.0, metrics={"right": True, "words": 3, "why": "text"}),
            EvaluateResult(score=0.0, metrics={"right": False}),
            EvaluateResult(error="the judge is down", metrics={"words": 2}),
            EvaluateResult(score=0.0, metrics={"right": 0.0, "words": 5}),
        ],
        steps,
        list(steps),
    )
    assert batch["a"].components == {"right": 1.0, "words": 3.0}
    credit = apply_credit(
        batch, "gdpo", weights={"right": 1.0, "words": -1.0}, normalize_batch=False
    )
    # right 1, 0, 0: σ √(1/3); words of a and d: 3, 5, σ √2
    expected = [1.1546985 + 0.7071063, -0.5773493, 0.0, -0.5773493 - 0.7071063]
    np.testing.assert_allclose(credit.advantage, expected, atol=1e-6)
    assert batch["c"].steps[0].advantage is None
    with pytest.raises(CreditError, match=r"names \['word'\], .* are \['right', 'words'\]"):
        apply_credit(batch, "gdpo", weights={"word": 1.0})
    with pytest.raises(InvalidArgumentError, match="gdpo requires the option 'weights'"):
        apply_credit(batch, "gdpo")


CALL = {"id": "1", "type": "function", "function": {"name": "move", "arguments": '{"to": 3}'}}


def test_apply_credit_rtmc_compares_calls_texts_and_structured_actions():
    def taking(name, *actions):
        made = rollout(name, float(name), *"s" * len(actions))
        for step, action in zip(made.steps, actions, strict=True):
            step.action_taken = action
        return made

    def says(text, **calls):
        return {"role": "assistant", "content": text, **calls}

    rollouts = [
        taking("1", says("I think", tool_calls=[CALL]), says("done"), {"move": 1}),
        taking("3", says("Hm", tool_calls=[CALL | {"id": "2"}]), says("done"), {"move": 2}),
    ]
    credit = apply_credit(rollouts, "rtmc", state_key=lambda step: step.system_step_index, prior=0)
    assert credit.advantage.tolist() == [0.0, 0.0, -1.0, 0.0, 0.0, 1.0]
    credit = apply_credit(rollouts, "rtmc", prior=0, action_key=lambda step: step.system_step_index)
    assert not credit.advantage.any()


def test_apply_credit_rtmc_rejects_steps_without_an_action():
    won = rollout("a", 1.0, "s")
    won.steps[0].action_taken = None
    with pytest.raises(CreditError, match="step 0 of rollout 'a': it has no `action_taken`"):
        apply_credit([won], "rtmc")
    with pytest.raises(CreditError, match="the action key raised KeyError: 'x', at step 0"):
        apply_credit([won], "rtmc", action_key=lambda step: step.step_info["x"])


def test_apply_credit_replaces_earlier_advantages():
    rollouts = [rollout("a", 1.0, "s"), rollout("b", 0.0, "s")]
    apply_credit(rollouts, "grpo")
    rollouts[0].is_score_valid = False
    apply_credit(rollouts, "grpo")
    assert advantages(rollouts) == [[None], [0.0]]


def test_apply_credit_ignores_rollouts_without_a_valid_score():
    rollouts = [rollout("a", 1.0, "s", "l"), rollout("b", 0.0, "s"), rollout("c", 9.0, "s", "s",
                valid=False), rollout("d", None, "s", valid=False)]  # fmt: skip
    apply_credit(rollouts)
    alone = [rollout("a", 1.0, "s", "l"), rollout("b", 0.0, "s")]
    apply_credit(alone)
    assert filled(rollouts[:2]) == filled(alone)
    assert untouched(rollouts[2:])


def test_apply_credit_ignores_invalid_states_of_invalid_rollouts():
    rollouts = [rollout("a", 1.0, "s"), rollout("b", 0.0, "bad", valid=False)]

    def key(step):
        content = step.resulting_messages_history[0].content
        return content if content != "bad" else object()

    apply_credit(rollouts, state_key=key)
    assert advantages(rollouts) == [[0.0], [None]]


def test_apply_credit_calls_the_state_key_only_for_methods_with_states():
    rollouts = [rollout("a", 1.0, "s"), rollout("b", 0.0, "s")]
    apply_credit(rollouts, "grpo", state_key=lambda step: 1 / 0)
    assert not untouched(rollouts)


def test_apply_credit_the_state_key_decides_which_steps_are_compared():
    def rollouts():
        return [rollout("a", 1.0, "s", "l"), rollout("b", 0.0, "t", "l")]

    credits = {
        key if isinstance(key, str) else "own": apply_credit(rollouts(), state_key=key)
        for key in ("last", "last-2", "history", lambda step: "everywhere")
    }
    assert {name: credit.anchor.tolist() for name, credit in credits.items()} == {
        "last": [0, 1, 2, 1],
        "last-2": [0, 1, 2, 3],
        "history": [0, 1, 2, 3],
        "own": [0, 0, 0, 0],
    }


def test_apply_credit_a_batch_of_the_aligner_can_be_credited():
    recorded = {each.id: each.steps for each in (rollout("a", 0.0, "s"), rollout("b", 0.0, "s"))}
    results = [
        EvaluateResult(score=1.0, step_outputs=[StepOutput(step_index=0, base_reward=0.5)]),
        EvaluateResult(error="no answer"),
    ]
    batch = RLDataAligner().align_data_for_rl_processing(results, recorded, ["a", "b"])
    apply_credit(batch, "gigpo")
    assert filled(batch) == [[(0.0, 0.5)], [(None, None)]]
    assert untouched([AlignedRollout(name, steps) for name, steps in recorded.items()])


# Groups


def grouped():
    return [
        rollout("a", 1.0, "s", group="g"),
        rollout("b", 5.0, "s", group="h"),
        rollout("c", 0.0, "s", group="g"),
        rollout("d", 7.0, "s", group="h"),
    ]


GROUPED = [[0.5], [-1.0], [-0.5], [1.0]]


def test_apply_credit_compares_groups_separately_in_any_order():
    rollouts = grouped()
    apply_credit(rollouts, "grpo", normalize="mean")
    assert advantages(rollouts) == GROUPED


@pytest.mark.parametrize(
    "group",
    [
        {"a": 1, "b": 2, "c": 1, "d": 2},
        lambda each: each.id in "ac",
        lambda each: [each.id in "ac", {"unhashable": True}],
    ],
    ids=["mapping", "function", "unhashable"],
)
def test_apply_credit_accepts_groups_by_mapping_or_function(group):
    rollouts = grouped()
    for each in rollouts:
        each.group = None
    apply_credit(rollouts, "grpo", group=group, normalize="mean")
    assert advantages(rollouts) == GROUPED


GROUPS = [{"task": 1, "level": [2]}, ["q", 1], {"level": [2], "task": 1}, ["q", 1], ["q", 1.5]]


def test_apply_credit_groups_by_any_json_value():
    scores = [1.0, 5.0, 0.0, 7.0, 3.0]
    pairs = list(enumerate(zip(scores, GROUPS, strict=True)))
    rollouts = [rollout(i, score, "s", group=group) for i, (score, group) in pairs]
    apply_credit(rollouts, "grpo", normalize="mean")
    assert advantages(rollouts) == [[0.5], [-1.0], [-0.5], [1.0], [0.0]]
    keys = [group_key(each) for each in GROUPS]
    for one, key in zip(rollouts, keys, strict=True):
        alike = [each.score for each, other in zip(rollouts, keys, strict=True) if other == key]
        assert one.steps[0].advantage == one.score - sum(alike) / len(alike)


def test_apply_credit_accepts_unhashable_groups_of_a_function():
    rollouts = [rollout("a", 1.0, "s"), rollout("b", 0.0, "s")]
    apply_credit(rollouts, "grpo", normalize="mean", group=lambda each: {"task": [1]})
    assert advantages(rollouts) == [[0.5], [-0.5]]


def test_apply_credit_without_groups_makes_one_group():
    rollouts = [rollout(name, score, "s") for name, score in (("a", 1.0), ("b", 0.0))]
    apply_credit(rollouts, "grpo", normalize="mean")
    assert advantages(rollouts) == [[0.5], [-0.5]]


def test_apply_credit_rejects_a_batch_where_only_some_have_a_group():
    rollouts = grouped()
    rollouts[2].group = None
    with pytest.raises(CreditError, match=r"\['c'\] have no group and others do"):
        apply_credit(rollouts)
    assert untouched(rollouts)


def test_apply_credit_rejects_a_group_mapping_without_a_rollout():
    rollouts = grouped()
    with pytest.raises(CreditError, match=r"`group` lacks the rollouts \['c', 'd'\]"):
        apply_credit(rollouts, group={"a": 1, "b": 1})
    assert untouched(rollouts)


def test_apply_credit_accepts_a_rollout_without_steps_and_score():
    rollouts = [*grouped(), AlignedRollout("e", [], None, False, error="no recorded steps")]
    apply_credit(rollouts, "grpo", normalize="mean")
    assert advantages(rollouts) == [*GROUPED, []]


def test_apply_credit_a_group_of_one_has_0_and_a_note():
    rollouts = [rollout("a", 1.0, "s", "l", group="g")]
    credit = apply_credit(rollouts)
    assert advantages(rollouts) == [[0.0, 0.0]]
    assert credit.diagnostics.singletons == ("g",)
    assert any("nothing to compare it with" in note for note in credit.diagnostics.notes)


def test_apply_credit_an_empty_batch_gives_an_empty_credit_with_a_note():
    for batch in ([], AlignedBatch([])):
        credit = apply_credit(batch)
        assert credit.advantage.tolist() == []
        assert "The batch is empty." in credit.diagnostics.notes


# What is refused, with nothing filled in


def refused(rollouts, match, error=CreditError, **options):
    before = copy.deepcopy(rollouts)
    with pytest.raises(error, match=match):
        apply_credit(rollouts, **options)
    assert repr(rollouts) == repr(before)  # a NaN equals none, also itself


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_apply_credit_rejects_a_valid_score_that_is_not_finite(score):
    refused([rollout("a", 1.0, "s"), rollout("b", score, "s")], "`episode_score` is not finite")


def test_apply_credit_rejects_a_valid_rollout_without_a_score():
    refused([rollout("a", 1.0, "s"), rollout("b", None, "s")], "'b' is marked valid and has no")


def test_apply_credit_rejects_a_repeated_step():
    twice = rollout("a", 1.0, "s", "s", "s")
    twice.steps[2].system_step_index = 1
    refused([rollout("b", 1.0, "s"), twice], "a step of a trajectory is repeated in row 3")


def test_apply_credit_rejects_a_repeated_rollout():
    refused([rollout("a", 1.0, "s"), rollout("a", 1.0, "s")], "'a'")


def test_apply_credit_rejects_a_rollout_in_two_groups():
    refused([rollout("a", 1.0, "s", group=1), rollout("a", 0.0, "s", group=2)], "'a'")


def test_apply_credit_reports_the_rows_of_invalid_states():
    def key(step):
        content = step.resulting_messages_history[-2].content
        return content if content != "bad" else object()

    rollouts = [rollout("a", 1.0, "s", "bad"), rollout("b", 0.0, "bad")]
    refused(
        rollouts,
        r"states can't be compared: object in rows 1, 2",
        state_key=key,
    )


def test_apply_credit_reports_errors_of_the_state_key():
    def key(step):
        raise LookupError("no such room")

    refused([rollout("a", 1.0, "s")], "at step 0 of rollout 'a'", state_key=key)


def test_apply_credit_rejects_gae_without_value_estimates():
    refused(
        [rollout("a", 1.0, "s", "l", values=(0.5,))],
        "`values` is not finite in row 1",
        method="gae",
    )


def test_apply_credit_rejects_infinite_returns():
    rollouts = [rollout("a", 1.0, "s", "l", rewards=(1e308, 1e308)), rollout("b", 0.0, "s")]
    refused(rollouts, "too large")


def test_apply_credit_rejects_a_step_shared_by_rollouts():
    won, lost = rollout("a", 1.0, "s", "l"), rollout("b", 0.0, "s")
    lost.steps[0] = won.steps[0]
    refused([won, lost], "a step of rollout 'b' is the same object as one of 'a'")


def test_apply_credit_rejects_a_step_repeated_in_a_rollout():
    twice = rollout("a", 1.0, "s", "s")
    twice.steps[1] = twice.steps[0]
    refused([twice], "a step of rollout 'a' is the same object as one of 'a'")


def test_system_gigpo_rejects_shared_steps():
    steps = rollout("a", 1.0, "s").steps
    with pytest.raises(CreditError, match="a step of rollout 1 is the same object as one of 0"):
        system_apply_gigpo_to_batch_steps([steps, steps], [1.0, 0.0])
    assert steps[0].advantage is None


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        ([rollout("a", 1.0, "s").steps], r"batch\[0\] .* system_apply_gigpo_to_batch_steps"),
        ({"a": rollout("a", 1.0, "s")}, "`batch` must be a list, got {"),
        ("ab", "`batch` must be a list, got 'ab'"),
        (None, "`batch` must be a list, got None"),
        ([AlignedRollout("a", [{}], 1.0)], "the steps of rollout 'a' must be StepData, got {}"),
        ([AlignedRollout("a", None, 1.0)], r"batch\[0\] "),
        ([rollout(["a"], 1.0, "s")], r"\['a'\]"),
        ([rollout("a", "1", "s")], "`episode_score` must contain numbers, got <U1 values"),
    ],
    ids=["lists", "mapping", "text", "nothing", "dicts", "no steps", "list as id", "text score"],
)
def test_apply_credit_rejects_what_is_not_a_batch(batch, match):
    with pytest.raises(CreditError, match=match):
        apply_credit(batch)


@pytest.mark.parametrize(
    ("lists", "scores", "match"),
    [
        (
            [rollout("a", 1.0, "s").steps],
            {"a": 1.0},
            "`final_scores_for_rollouts` must be a list, got {",
        ),
        (
            [rollout("a", 1.0, "s").steps],
            1.0,
            "`final_scores_for_rollouts` must be a list, got 1.0",
        ),
        (
            {"a": rollout("a", 1.0, "s").steps},
            [1.0],
            "`batch_of_step_data_lists` must be a list, got {",
        ),
        (
            rollout("a", 1.0, "s").steps,
            [1.0],
            r"`batch_of_step_data_lists\[0\]` must be a list, got StepData",
        ),
        ([[{}]], [1.0], "the steps of rollout 0 must be StepData, got {}"),
        ([[[]]], [1.0], r"the steps of rollout 0 must be StepData, got \[\]"),
    ],
    ids=["scores by id", "one score", "lists by id", "one list", "dicts", "lists of lists"],
)
def test_system_gigpo_rejects_what_is_not_lists_of_steps(lists, scores, match):
    with pytest.raises(CreditError, match=match):
        system_apply_gigpo_to_batch_steps(lists, scores)


def test_apply_credit_rejects_a_step_without_messages():
    silent = rollout("b", 0.0, "s", "l")
    silent.steps[1].resulting_messages_history = []
    refused([rollout("a", 1.0, "s"), silent], "step 1 of rollout 'b': it has no messages")
    apply_credit([rollout("a", 1.0, "s"), silent], state_key=lambda step: step.system_step_index)
    assert silent.steps[1].advantage is not None


def test_apply_credit_reports_the_step_where_the_state_key_raised():
    def key(step):
        if step.system_step_index == 1:
            raise LookupError("no such room")
        return "s"

    rollouts = [rollout("a", 1.0, "s"), rollout("b", 1.0, "s", "l")]
    message = "the state key raised LookupError: no such room, at step 1 of rollout 'b'"
    refused(rollouts, message, state_key=key)
    with pytest.raises(CreditError) as refusal:
        apply_credit(rollouts, state_key=key)
    assert isinstance(refusal.value.__cause__, LookupError)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "ppo"}, "there is no estimator 'ppo'; known: 'dr_grpo', 'gae'"),
        ({"gama": 0.9}, "gigpo has no option 'gama'; it has gamma, omega"),
        ({"method": "grpo", "omega": 1.0}, "grpo has no option 'omega'"),
        ({"valid": [True]}, "gigpo has no option 'valid'"),
        ({"episode_score": [1.0]}, "gigpo has no option 'episode_score'"),
        ({"state_key": "first"}, "`state_key` must be 'last', .* got 'first'"),
    ],
    ids=["method", "typo", "another's", "valid", "score", "state key"],
)
def test_apply_credit_rejects_unknown_names(options, match):
    refused([rollout("a", 1.0, "s")], match, InvalidArgumentError, **options)


@pytest.mark.parametrize(
    "options", [{"gamma": 2.0}, {"gamma": float("nan")}, {"normalize": "std"}, {"omega": -1.0}],
    ids=str,
)  # fmt: skip
def test_apply_credit_rejects_options_out_of_range(options):
    refused([rollout("a", 1.0, "s"), rollout("b", 0.0, "s")], next(iter(options)),
            (CreditError, InvalidArgumentError), **options)  # fmt: skip


def test_apply_credit_of_an_unknown_option_lists_the_known_options():
    with pytest.raises(InvalidArgumentError, match=r"grpo has no option 'x'; it has .*normalize"):
        apply_credit([], "grpo", x=1)


# Properties

SCORES = st.none() | st.sampled_from([0.0, 0.5, 1.0, -2.0])
STATES = st.lists(st.sampled_from("st"), min_size=1, max_size=3)
BATCHES = st.lists(st.tuples(SCORES, STATES, st.sampled_from("gh")), min_size=1, max_size=6)


def made(batch):
    return [
        rollout(number, score, *states, group=group, valid=score is not None)
        for number, (score, states, group) in enumerate(batch)
    ]


@given(batch=BATCHES, data=st.data())
def test_apply_credit_the_order_of_rollouts_does_not_matter(batch, data):
    rollouts, others = made(batch), made(batch)
    shuffled = data.draw(st.permutations(others))
    apply_credit(rollouts, gamma=0.9)
    apply_credit(shuffled, gamma=0.9)
    for one, other in zip(rollouts, others, strict=True):
        for step, same in zip(one.steps, other.steps, strict=True):
            assert step.advantage == (
                None if same.advantage is None else pytest.approx(same.advantage, abs=1e-9)
            )


@given(batch=BATCHES)
def test_apply_credit_groups_together_are_groups_one_by_one(batch):
    whole, parts = made(batch), made(batch)
    apply_credit(whole, gamma=0.5)
    for group in "gh":
        apply_credit([each for each in parts if each.group == group], gamma=0.5)
    assert filled(whole) == filled(parts)


@given(batch=BATCHES)
def test_apply_credit_steps_have_an_advantage_exactly_where_the_score_is_valid(batch):
    rollouts = made(batch)
    apply_credit(rollouts)
    for each in rollouts:
        assert {step.advantage is not None for step in each.steps} == {each.is_score_valid}


# Under the seed plan's name


@given(batch=BATCHES, omega=st.sampled_from([0.0, 0.5, 1.0]), gamma=st.sampled_from([0.5, 1.0]))
def test_system_gigpo_equals_apply_credit(batch, omega, gamma):
    assume(len({group for *_, group in batch}) == 1)
    rollouts, lists = made(batch), [each.steps for each in made(batch)]
    scores = [score for score, *_ in batch]
    apply_credit(rollouts, omega=omega, gamma=gamma)
    given_back = system_apply_gigpo_to_batch_steps(lists, scores, omega, gamma)
    assert all(a is b for one, two in zip(given_back, lists, strict=True)
               for a, b in zip(one, two, strict=True))  # fmt: skip
    assert [[step.advantage for step in steps] for steps in lists] == advantages(rollouts)


def test_system_gigpo_has_the_documented_argument_names():
    lists = [rollout("a", 1.0, "s", "l").steps, rollout("b", 0.0, "s").steps]
    system_apply_gigpo_to_batch_steps(
        batch_of_step_data_lists=lists,
        final_scores_for_rollouts=[1.0, 0.0],
        omega=1.0,
        gamma=1.0,
        state_hashing_function=lambda step: step.system_step_index,
        default_step_reward=0.0,
    )
    assert all(step.advantage is not None for steps in lists for step in steps)


def test_system_gigpo_uses_the_default_reward():
    lists = [rollout("a", 1.0, "s", "s", rewards=(None, 1.0)).steps]
    system_apply_gigpo_to_batch_steps(lists, [1.0], default_step_reward=0.5)
    assert [step.return_to_go for step in lists[0]] == [1.5, 1.0]


def test_system_gigpo_reads_groups_from_the_first_steps():
    lists = [each.steps for each in grouped()]
    for steps, group in zip(lists, "ghgh", strict=True):
        steps[0].step_info["group"] = group
    system_apply_gigpo_to_batch_steps(lists, [1.0, 5.0, 0.0, 7.0], omega=0.0)
    signs = [np.sign(steps[0].advantage) for steps in lists]
    assert signs == [1, -1, -1, 1]


def test_system_gigpo_sets_no_advantage_without_a_score():
    lists = [rollout("a", 1.0, "s").steps, rollout("b", 0.0, "s").steps]
    system_apply_gigpo_to_batch_steps(lists, [1.0, None])
    assert [steps[0].advantage for steps in lists] == [0.0, None]


@pytest.mark.parametrize("scores", [[], [1.0], [1.0, 0.0, 0.5]], ids=len)
def test_system_gigpo_rejects_another_number_of_scores(scores):
    lists = [rollout("a", 1.0, "s").steps, rollout("b", 0.0, "s").steps]
    with pytest.raises(CreditError, match=f"one score for each of 2 rollouts, got {len(scores)}"):
        system_apply_gigpo_to_batch_steps(lists, scores)
    assert all(step.advantage is None for steps in lists for step in steps)


def test_system_gigpo_rejects_a_nan_score():
    lists = [rollout("a", 1.0, "s").steps, rollout("b", 0.0, "s").steps]
    with pytest.raises(CreditError, match="not finite"):
        system_apply_gigpo_to_batch_steps(lists, [1.0, float("nan")])
    assert all(step.advantage is None for steps in lists for step in steps)


def test_system_gigpo_accepts_empty_lists():
    assert system_apply_gigpo_to_batch_steps([], []) == []
    lists = [rollout("a", 1.0, "s").steps, [], rollout("b", 0.0, "s").steps]
    for steps in lists[::2]:
        steps[0].step_info["group"] = "g"
    assert system_apply_gigpo_to_batch_steps(lists, [1.0, None, 0.0])[1] == []
    assert lists[0][0].advantage > 0 > lists[2][0].advantage


def test_apply_credit_notes_rollouts_without_steps():
    rollouts = [rollout("a", 1.0), rollout("b", 0.0, "s"), rollout("c", 1.0, "s")]
    notes = apply_credit(rollouts, "grpo").diagnostics.notes
    assert any("without steps" in note and "'a'" in note for note in notes)
    assert not any("without steps" in note for note in apply_credit(rollouts[1:]).diagnostics.notes)
