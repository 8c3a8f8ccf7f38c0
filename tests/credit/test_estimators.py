"""Properties of every estimator on any batch."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import guerdon.credit
from guerdon.credit import ESTIMATORS
from tests.credit.calls import run

NAN = float("nan")

PARTS = ["advantage", "episode", "step", "returns"]

step_rewards = st.sampled_from([NAN, -1.0, 0.0, 0.1, 0.3, 2.0])
steps = st.lists(
    st.tuples(step_rewards, st.sampled_from(["s", "t", "ttttttttttu"])), min_size=1, max_size=4
)
trajectories = st.lists(st.tuples(st.floats(-9, 9, width=16), steps), min_size=1, max_size=4)
batches = st.lists(trajectories, min_size=1, max_size=3)
seeds = st.integers(0, 2**32 - 1)


def columns(batch, first_group=0):
    """The columns of groups of trajectories, each a score and its steps."""
    rows = [
        (reward, group, f"{group}/{number}", 3 * step, state, score)
        for group, members in enumerate(batch, start=first_group)
        for number, (score, walk) in enumerate(members)
        for step, (reward, state) in enumerate(walk)
    ]
    names = ["rewards", "group", "trajectory", "step", "state", "episode_score"]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def assign(name, table, **options):
    """Call an estimator, with the columns that it needs."""
    table = dict(table)
    if name == "gae":
        options["values"] = [0.25 * len(one) for one in table["state"]]
    if name == "gdpo":
        options = {
            "weights": {"score": 1.0, "extra": 0.5},
            "components": components(table),
        } | options
    if name == "rtmc":
        options["action"] = [step % 2 for step in table["step"]]
    if name == "pure":
        options["valid"] = options.get("valid") or valid_for_pure(table)
    return run(ESTIMATORS[name], **table, **options)


def components(table):
    """Two components of each trajectory's score, of which some trajectories lack one."""
    numbers = [ord(one[-1]) % 4 for one in table["trajectory"]]
    scores = table.get("episode_score", numbers)
    return {"score": scores, "extra": [NAN if one == 1 else 0.5 * one for one in numbers]}


def valid_for_pure(table):
    """PURE needs a process reward in each trajectory."""
    rewarded = {
        one
        for one, reward in zip(table["trajectory"], table["rewards"], strict=True)
        if reward == reward
    }
    return [one in rewarded for one in table["trajectory"]]


CASES = [(name, {}) for name in ESTIMATORS.names()] + [
    ("gigpo", {"history": 2, "episode_stats": "rows", "gamma": 0.9}),
    ("gigpo", {"similarity": 0.6, "history": 1, "normalize": "mean"}),
    ("hgpo", {"similarity": 0.6, "gamma": 0.9}),
    ("gdpo", {"normalize_batch": False}),
    ("rtmc", {"prior": 0.0, "gamma": 0.9}),
]
# Their statistics are those of the batch.
OF_BATCH = [("reinforce_pp", {}), ("gdpo", {})]
each_method = pytest.mark.parametrize(
    ("method", "options"),
    CASES,
    ids=lambda value: value if type(value) is str else ",".join(value) or "default",
)
quick = settings(max_examples=12)


@each_method
@quick
@given(batch=batches, seed=seeds, scored=st.booleans())
def test_estimators_do_not_depend_on_the_order_of_the_rows(method, options, batch, seed, scored):
    table = columns(batch)
    if not scored:  # the scores are then sums, of numbers that no binary fraction is equal to
        del table["episode_score"]
        table["rewards"] = [0.7 if reward != reward else reward for reward in table["rewards"]]
    order = np.random.default_rng(seed).permutation(len(table["rewards"]))
    shuffled = {name: [column[row] for row in order] for name, column in table.items()}
    straight, mixed = assign(method, table, **options), assign(method, shuffled, **options)
    for part in [*PARTS, "anchor", "mask"]:
        np.testing.assert_array_equal(getattr(straight, part)[order], getattr(mixed, part))


@each_method
@quick
@given(batch=batches, spoiled=trajectories.filter(len), seed=seeds)
def test_estimators_ignore_invalid_trajectories(method, options, batch, spoiled, seed):
    table = columns(batch)
    size = len(table["rewards"])
    more = columns([spoiled], first_group=seed % len(batch))
    more["trajectory"] = [f"spoiled {one}" for one in more["trajectory"]]
    more["rewards"] = [float("inf")] * len(more["rewards"])
    merged = {name: table[name] + more[name] for name in table}
    valid = valid_for_pure(table) if method == "pure" else [True] * size
    alone = assign(method, table, **options)
    among = assign(method, merged, valid=valid + [False] * len(more["rewards"]), **options)
    for part in [*PARTS, "anchor", "mask"]:
        np.testing.assert_array_equal(getattr(alone, part), getattr(among, part)[:size])
    assert not among.mask[size:].any()
    assert not among.advantage[size:].any()


@pytest.mark.parametrize(
    ("method", "options"),
    [case for case in CASES if case not in OF_BATCH],
    ids=lambda value: value if type(value) is str else ",".join(value) or "default",
)
@quick
@given(first=batches, second=batches)
def test_estimators_a_merged_batch_equals_its_parts(method, options, first, second):
    one, two = columns(first), columns(second, first_group=len(first))
    merged = {name: one[name] + two[name] for name in one}
    together = assign(method, merged, **options)
    apart = [assign(method, part, **options) for part in (one, two)]
    for part in PARTS:
        np.testing.assert_array_equal(
            getattr(together, part), np.concatenate([getattr(credit, part) for credit in apart])
        )


@pytest.mark.parametrize("method", ["gigpo", "grpo", "dr_grpo", "rloo", "mt_grpo", "gdpo"])
@quick
@given(batch=batches)
def test_estimators_the_episode_advantages_of_a_group_sum_to_0(method, batch):
    table = columns(batch)
    credit = assign(method, table)
    _, first = np.unique(table["trajectory"], return_index=True)
    sums = np.bincount(np.array(table["group"])[first], credit.episode[first])
    np.testing.assert_allclose(sums, 0, atol=1e-9)


@pytest.mark.parametrize("method", ["gigpo", "grpo", "dr_grpo", "rloo", "mt_grpo", "gdpo"])
@quick
@given(batch=batches, constant=st.sampled_from([-3.0, 0.5, 1024.0, 2.0**26]))
def test_estimators_a_constant_added_to_a_groups_scores_changes_no_episode_advantage(
    method, batch, constant
):
    table = columns([[(round(score, 1), walk) for score, walk in group] for group in batch])
    higher = table | {
        "episode_score": [
            score + constant * (group == 0)
            for score, group in zip(table["episode_score"], table["group"], strict=True)
        ]
    }
    np.testing.assert_allclose(
        assign(method, table).episode, assign(method, higher).episode, atol=1e-6
    )


@pytest.mark.parametrize(
    ("method", "options"),
    [("turn_rloo", {}), ("rtmc", {}), ("rtmc", {"prior": 0.0}), ("state_differences", {})],
    ids=str,
)
@quick
@given(batch=batches, constant=st.sampled_from([-3.0, 0.5, 1024.0]), known=st.booleans())
def test_estimators_a_constant_added_to_all_scores_changes_no_advantage(
    method, options, batch, constant, known
):
    table = columns(batch)
    if method != "state_differences" or not known:  # whose base rewards are scores, too
        table["rewards"] = [NAN] * len(table["rewards"])
    higher = table | {
        name: [number + constant for number in table[name]] for name in ("rewards", "episode_score")
    }
    np.testing.assert_allclose(
        assign(method, table, **options).advantage,
        assign(method, higher, **options).advantage,
        atol=1e-6,
    )


@pytest.mark.parametrize("method", ESTIMATORS.names())
def test_estimators_accepts_no_rows(method):
    names = ["rewards", "group", "trajectory", "step", "state"]
    credit = assign(method, {name: [] for name in names})
    assert credit.advantage.shape == (0,)
    assert "The batch is empty." in credit.diagnostics.notes


@pytest.mark.parametrize("method", ESTIMATORS.names())
def test_estimators_an_estimator_cites_its_paper(method):
    assert "arXiv" in ESTIMATORS[method].__doc__
    assert ESTIMATORS[method].__name__ == method


def test_package_exports_each_name_once():
    assert guerdon.credit.__all__ == sorted(set(guerdon.credit.__all__))
    assert set(ESTIMATORS.names()) < set(guerdon.credit.__all__)
    assert all(callable(getattr(guerdon.credit, name)) for name in ESTIMATORS.names())


@pytest.mark.edge
def test_package_import_does_not_load_numpy():
    code = "import sys, guerdon.credit; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
