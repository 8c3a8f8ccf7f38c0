"""Trajectories that a limit cut off: kept, masked, or bootstrapped from a critic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.credit import StepBatch, gae, gate_on_outcome, grpo
from guerdon.errors import CreditError

NAN = float("nan")


def batch_of(scores, cut, **options):
    size = len(scores)
    return StepBatch.from_arrays(
        [NAN] * size, trajectory=range(size), step=[0] * size, group=["g"] * size,
        episode_score=scores, truncated=cut, **options,
    )  # fmt: skip


def test_by_default_a_trajectory_that_was_cut_off_is_one_like_any_other():
    credit = grpo(batch_of([1.0, 0.0, 0.0], [False, True, False]))
    assert credit.advantage.tolist() == grpo(batch_of([1.0, 0.0, 0.0], None)).advantage.tolist()
    assert credit.loss_mask.all()
    assert credit.diagnostics.truncated == (1,)


@given(seed=st.integers(0, 2**32 - 1))
def test_loss_mask_counts_it_in_the_statistics_and_does_not_train_on_it(seed):
    rng = np.random.default_rng(seed)
    scores, cut = rng.integers(0, 3, 8).astype(float), rng.random(8) < 0.4
    kept = grpo(batch_of(scores, cut))
    credit = grpo(batch_of(scores, cut, truncation="loss_mask"))
    assert credit.advantage.tolist() == kept.advantage.tolist()
    assert credit.mask.all()
    assert credit.loss_mask.tolist() == (~cut).tolist()


def test_mask_leaves_it_out_everywhere():
    credit = grpo(batch_of([1.0, 0.0, 5.0], [False, False, True], truncation="mask"))
    np.testing.assert_allclose(credit.advantage, [0.7071058, -0.7071058, 0.0])
    assert credit.mask.tolist() == credit.loss_mask.tolist() == [True, True, False]
    assert credit.diagnostics.masked == {2: "it was cut off"}


@given(seed=st.integers(0, 2**32 - 1))
def test_gae_of_a_cut_with_an_exact_last_value_is_gae_of_the_whole_episode(seed):
    rng = np.random.default_rng(seed)
    size, cut = 9, int(rng.integers(1, 9))
    gamma, lam = rng.random(2)
    rewards, values = rng.normal(size=size), rng.normal(size=size)
    for t in range(size - 1, cut - 1, -1):  # the critic is exact after the cut
        values[t] = rewards[t] + gamma * (values[t + 1] if t + 1 < size else 0.0)

    def advantages(steps, **options):
        batch = StepBatch.from_arrays(
            rewards[:steps], trajectory=["a"] * steps, step=range(steps), values=values[:steps],
            **options,
        )  # fmt: skip
        return gae(batch, gamma=gamma, lam=lam).advantage[:cut]

    for truncation in "bootstrap", "keep":
        end = {"truncated": [True], "last_value": [values[cut]], "truncation": truncation}
        np.testing.assert_allclose(advantages(cut, **end), advantages(size), atol=1e-12)
    ended = {"truncated": [False], "last_value": [values[cut]]}
    assert advantages(cut, **ended).tolist() == advantages(cut).tolist()


def test_gae_says_where_the_value_after_a_cut_is_unknown():
    batch = StepBatch.from_arrays(
        [0.0, 0.0], trajectory=["a", "b"], step=[0, 0], values=[0.5, 0.5],
        truncated=[True, True], last_value=[0.8, None],
    )  # fmt: skip
    credit = gae(batch)
    np.testing.assert_allclose(credit.advantage, [0.3, -0.5])
    assert "V is 0 after trajectories that were cut off: 'b'." in credit.diagnostics.notes


def test_a_note_tells_how_many_were_cut_off():
    batch = batch_of([1.0, 0.0, 0.0, 0.0, 0.0], [False, True, True, False, False])
    notes = grpo(batch).diagnostics.notes
    assert "40% of the trajectories were cut off, and 50% of those that failed." in notes
    few = batch_of([1.0, 0.0, 0.0, 0.0, 0.0], [False, True, False, False, False])
    assert not any("cut off" in note for note in grpo(few).diagnostics.notes)


def test_an_outcome_gates_trajectories_that_were_cut_off_like_others():
    batch = batch_of(
        [1.0, 0.1, 0.0], [False, True, False], truncation="loss_mask",
        components={"right": [1.0, 0.0, 0.0], "brief": [0.0, 0.1, 0.0]},
    )  # fmt: skip
    credit = grpo(gate_on_outcome(batch, "right"))
    assert credit.advantage[1] == credit.advantage[2] < 0
    assert credit.loss_mask.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncation": "drop"}, "`truncation` must be"),
        ({"truncated": [True, 2]}, "`truncated` must contain booleans"),
        ({"truncation": "bootstrap"}, "truncation='bootstrap' requires a critic"),
        ({"truncation": "bootstrap", "values": [0.0] * 2}, "no `last_value` .* row 0$"),
        ({"last_value": [float("inf"), 0.0]}, "`last_value` is infinite"),
    ],
)
def test_invalid_truncation_is_refused(options, message):
    columns = {"truncated": [True, False]} | options
    with pytest.raises(CreditError, match=message):
        StepBatch.from_arrays(
            [NAN] * 2, trajectory=["a", "b"], step=[0, 0], episode_score=[1.0, 0.0], **columns
        )
