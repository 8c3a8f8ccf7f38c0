"""The result of an estimator and its diagnostics."""

import dataclasses
import pickle

import numpy as np
import pytest

from guerdon.credit import gigpo, grpo, reinforce_pp
from tests.credit.calls import run

NAN = float("nan")


def example(**changes):
    """Groups with different scores (g), equal scores (h), one trajectory (i), one valid one (j)."""
    columns = {
        "rewards": [0.0, 1.0, 0.0, 0.0, 2.0, 2.0, 3.0, 0.0, 0.0],
        "group": list("gggghhijj"),
        "trajectory": list("aabbcdefg"),
        "step": [0, 1, 0, 1, 0, 0, 0, 0, 0],
        "state": list("stsusssss"),
        "valid": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 0},
    }
    return run(gigpo, **(columns | changes))


def test_credit_diagnostics_report_what_gives_no_signal():
    diagnostics = example().diagnostics
    # s t s u | s s | s | s: in g and h two shared states of two steps each, of 8 valid steps
    assert diagnostics.anchor_sizes.tolist() == [2, 1, 1, 2, 1, 1]
    assert diagnostics.anchor_coverage == 4 / 8
    assert diagnostics.dead_anchors == 1
    assert diagnostics.dead_groups == ("h",)
    assert diagnostics.singletons == ("i", "j")
    assert diagnostics.masked == {"g": "marked invalid in row 8"}
    assert diagnostics.notes == (
        "Trajectories that don't count: 'g'.",
        "Groups with one valid trajectory and nothing to compare it with: 'i', 'j'.",
        "Groups whose trajectories all score the same: 'h'.",
    )


def test_credit_a_trajectory_is_masked_for_its_rows():
    valid = [True, False, True, True, True, True, True, True, False]
    assert example(valid=valid).diagnostics.masked == {
        "a": "marked invalid in row 1",
        "g": "marked invalid in row 8",
    }


def test_credit_diagnostics_report_that_no_state_is_shared():
    credit = example(state=range(9))
    assert credit.diagnostics.anchor_coverage == 0.0
    assert any("No two steps share a state" in note for note in credit.diagnostics.notes)


def test_credit_diagnostics_report_scores_that_returns_do_not_include():
    table = {"group": ["g"] * 2, "trajectory": ["a", "b"], "step": [0, 0], "state": ["s", "s"]}
    blind = run(gigpo, [0.0, 0.0], **table, episode_score=[1.0, 0.0])
    assert any("don't include the score" in note for note in blind.diagnostics.notes)
    assert run(gigpo, [NAN, NAN], **table, episode_score=[1.0, 0.0]).diagnostics.notes == ()


def test_credit_without_anchors_there_is_no_coverage():
    diagnostics = run(
        grpo, [1.0, 0.0], group=["g"] * 2, trajectory=["a", "b"], step=[0, 0]
    ).diagnostics
    assert diagnostics.anchor_coverage == 0.0
    assert diagnostics.anchor_sizes.tolist() == []
    assert diagnostics.notes == ()


def test_credit_diagnostics_do_not_mention_groups_without_group_ids():
    credit = run(reinforce_pp, [1.0, 1.0], trajectory=["a", "b"], step=[0, 0])
    assert credit.diagnostics.dead_groups == ()
    assert credit.diagnostics.notes == ()


def test_credit_diagnostics_list_only_the_first_ids():
    size = 9
    notes = run(grpo, [1.0] * size, group=range(size), trajectory=range(size), step=[0] * size)
    assert "0, 1, 2, 3, 4 and 4 more." in notes.diagnostics.notes[0]


def test_credit_diagnostics_are_computed_once():
    credit = example()
    assert credit.diagnostics is credit.diagnostics


def test_credit_a_credit_is_frozen_and_can_be_pickled():
    credit = example()
    with pytest.raises(dataclasses.FrozenInstanceError):
        credit.advantage = np.zeros(9)
    copied = pickle.loads(pickle.dumps(credit))
    np.testing.assert_array_equal(copied.advantage, credit.advantage)
    assert copied.diagnostics.notes == credit.diagnostics.notes


def test_credit_all_parts_have_the_shape_of_the_rows():
    credit = example()
    for part in (credit.advantage, credit.episode, credit.step, credit.returns):
        assert (part.shape, part.dtype) == ((9,), np.float64)
    assert (credit.anchor.shape, credit.anchor.dtype) == ((9,), np.int64)
    assert (credit.mask.shape, credit.mask.dtype) == ((9,), np.bool_)
