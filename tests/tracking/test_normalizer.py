import copy
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import RewardNormalizer
from guerdon.errors import InvalidArgumentError, StateError

MEANS = ["running_mean_std", "population"]
METHODS = ["running_mean_std", "min_max", "percentile", "population"]
EXACT = ["running_mean_std", "min_max", "population"]
EVERY = pytest.mark.parametrize("method", METHODS)
QUICK = settings(max_examples=40)  # for each method

REWARDS = st.floats(-1e6, 1e6)
ROWS = st.lists(st.tuples(REWARDS, st.sampled_from(["chess", "go", 3])), min_size=1, max_size=40)


def columns(rows):
    return [reward for reward, _ in rows], [env_id for _, env_id in rows]


def stored(normalizer):
    """Return its state after a round trip through JSON."""
    return json.loads(json.dumps(normalizer.state_dict()))


def same_scale(one, other):
    assert one.count == other.count
    # The squares of smaller deviations than 1e-150 are no normal floats.
    rounding = max(1e-9 * abs(one.center), 1e-9 * one.spread, 1e-150)
    assert one.center == pytest.approx(other.center, rel=1e-9, abs=rounding)
    assert one.spread == pytest.approx(other.spread, rel=1e-9, abs=rounding)


# Computed examples


@pytest.mark.parametrize(
    ("method", "rewards", "expected"),
    [
        ("running_mean_std", [5.0], [0.0]),
        ("running_mean_std", [5.0, 5.0, 5.0], [0.0, 0.0, 0.0]),
        ("running_mean_std", [1.0, 3.0], [0.0, 1.0]),  # μ 2, σ 1
        ("running_mean_std", [3.0, 1.0], [0.0, -1.0]),
        ("running_mean_std", [0.0, 0.0, 3.0], [0.0, 0.0, math.sqrt(2)]),  # μ 1, σ √2
        ("min_max", [5.0, 5.0], [0.0, 0.0]),
        ("min_max", [5.0, 7.0, 6.0, 3.0], [0.0, 1.0, 0.5, 0.0]),
        ("percentile", [5.0, 5.0], [0.0, 0.0]),
        ("percentile", [5.0, 7.0, 6.0, 3.0], [0.0, 1.0, 0.5, 0.0]),
        ("population", [1.0, 3.0], [0.0, 1.0]),
    ],
)
def test_call_normalizes_single_rewards(method, rewards, expected):
    normalizer = RewardNormalizer(method)
    found = [normalizer(reward=reward, env_id="chess") for reward in rewards]
    assert found == pytest.approx(expected, abs=1e-12)
    assert {type(each) for each in found} == {float}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("running_mean_std", [-1.0, 1.0, 0.0, -1.0, 1.0]),
        ("min_max", [0.0, 1.0, 0.0, 0.0, 1.0]),
        ("percentile", [0.0, 1.0, 0.0, 0.0, 1.0]),
        # Means 2, 10 and 0, variances 1, 0 and 4: M = 4, S² = (1 + 4 + 36 + 4 + 16) / 3
        ("population", [each / math.sqrt(61 / 3) for each in (-3.0, -1.0, 6.0, -6.0, -2.0)]),
    ],
)
def test_call_adds_an_array_before_normalizing_it(method, expected):
    normalizer = RewardNormalizer(method)
    found = normalizer([1.0, 3.0, 10.0, -2.0, 2.0], env_id=[0, 0, 1, 2, 2])
    assert found.tolist() == pytest.approx(expected)


def test_population_weights_environments_equally():
    normalizer = RewardNormalizer("population")
    normalizer([0.0] * 999 + [1.0], env_id=[0] * 999 + [1])
    assert normalizer.scale() == normalizer.scale(0)
    assert (normalizer.scale().center, normalizer.scale().spread) == (0.5, 0.5)


def test_percentile_ignores_rare_extremes():
    rewards = [*range(99), 1e9]
    normalizer = RewardNormalizer("percentile")
    found = normalizer(rewards, env_id="chess")
    assert normalizer.scale("chess").center == 4.0  # the fifth of a hundred
    assert found[94] == 1.0
    assert found[99] == 10.0


def test_percentiles_argument_sets_the_range():
    normalizer = RewardNormalizer("percentile", percentiles=(25, 75))
    normalizer(list(range(1, 101)), env_id="chess")
    assert (normalizer.scale("chess").center, normalizer.scale("chess").spread) == (25.0, 50.0)


def test_clip_range_clips_rewards():
    normalizer = RewardNormalizer("min_max", clip_range=(0.25, 0.5))
    assert normalizer([0.0, 10.0, 3.0], env_id=1).tolist() == [0.25, 0.5, 0.3]
    assert normalizer(10.0, env_id=1) == 0.5
    assert RewardNormalizer(clip_range=None)([0.0] * 999 + [1.0], 1).max() > 10


def test_clip_range_is_ten_by_default():
    normalizer = RewardNormalizer()
    assert normalizer([0.0] * 999 + [1.0], 1).max() == 10.0
    assert normalizer(-5.0, 1) == -10.0


def test_per_environment_false_pools_rewards():
    pooled = RewardNormalizer(per_environment=False)
    assert pooled([1.0, 3.0]).tolist() == [-1.0, 1.0]
    assert pooled(2.0, env_id="any") == 0.0
    assert pooled.environments == []
    assert pooled.scale().count == 3


ORDERS = [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]


@EVERY
@pytest.mark.parametrize("factor", [1.0, -1e9, 1e-9])
def test_call_treats_rounding_differences_as_equal(method, factor):
    rewards = [factor * reward for reward in ORDERS] * 10
    assert rewards[0] != rewards[1]
    normalizer = RewardNormalizer(method)
    assert np.abs(normalizer(rewards, env_id="chess")).max() < 1e-6
    assert abs(normalizer(rewards[0], env_id="chess")) < 1e-6


@EVERY
def test_call_keeps_differences_larger_than_rounding(method):
    normalizer = RewardNormalizer(method)
    found = normalizer([1e9, 1e9 + 1e-3], env_id="chess")
    assert found[1] - found[0] == pytest.approx(2.0 if method in MEANS else 1.0)


# Compared with numpy


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e12])
@pytest.mark.parametrize("as_array", [True, False])
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=50))
def test_running_mean_std_is_exact_at_any_offset(offset, as_array, noise):
    rewards = [offset + each for each in noise]
    normalizer = RewardNormalizer()
    if as_array:
        normalizer(rewards, env_id=1)
    else:
        for reward in rewards:
            normalizer(reward, env_id=1)
    exact = [Fraction(reward) for reward in rewards]
    mean = sum(exact) / len(exact)
    variance = sum((reward - mean) ** 2 for reward in exact) / len(exact)
    scale = normalizer.scale(1)
    assert scale.center == pytest.approx(float(mean), rel=1e-14, abs=1e-11)
    assert scale.spread == pytest.approx(math.sqrt(variance), rel=1e-9, abs=abs(offset) * 1e-15)


@pytest.mark.parametrize("size", [1, 5, 16_384, 100_000])
@pytest.mark.parametrize("ids", [16, 1000], ids=lambda ids: f"{ids} environments")
def test_running_mean_std_of_blocks_equals_numpy(size, ids):
    dice = np.random.default_rng(size)
    rewards, env_id = 1e9 + dice.normal(size=size), dice.integers(0, ids, size)
    normalizer = RewardNormalizer()
    found = normalizer(rewards, env_id)
    for one in np.unique(env_id)[:20].tolist():
        own = rewards[env_id == one]
        scale = normalizer.scale(one)
        assert scale.count == len(own)
        assert scale.center == pytest.approx(own.mean(), rel=1e-15)
        assert scale.spread == pytest.approx((own - own[0]).std(), rel=1e-9, abs=1e-12)
        expected = (own - scale.center) / (scale.spread or 1)
        assert found[env_id == one].tolist() == pytest.approx(expected.clip(-10, 10).tolist())


@pytest.mark.parametrize("merged", [False, True])
def test_running_mean_std_of_large_batches_loses_no_digits(merged):
    batches = 1e9 + np.random.default_rng(0).normal(size=(50, 1_000))
    normalizer = RewardNormalizer()
    for batch in batches:
        worker = RewardNormalizer() if merged else normalizer
        worker(batch, env_id="far")
        if merged:
            normalizer.merge(worker)
    expected = (batches - 1e9).std()
    assert normalizer.scale("far").spread == pytest.approx(expected, rel=1e-12)


def test_running_mean_std_of_ten_million_rewards_loses_no_digits():
    normalizer = RewardNormalizer()
    dice = np.random.default_rng(0)
    noise = dice.normal(size=100_000)
    rewards = 1e9 + (noise - noise.mean()) / noise.std()
    for _ in range(100):
        normalizer(rewards, env_id="far")
    one_by_one = RewardNormalizer()
    for reward in rewards.tolist():
        one_by_one(reward, env_id="far")
    deviation = (rewards - 1e9).std()
    for each, count in ((normalizer, 10**7), (one_by_one, 10**5)):
        scale = each.scale("far")
        assert scale.count == count
        assert scale.center == pytest.approx(1e9, rel=1e-15)
        assert scale.spread == pytest.approx(deviation, rel=1e-9)


# One by one, in arrays, on several workers


@EVERY
@QUICK
@given(rows=ROWS)
def test_call_with_an_array_equals_single_calls(method, rows):
    at_once, one_by_one = RewardNormalizer(method), RewardNormalizer(method)
    at_once(*columns(rows))
    last = [one_by_one(reward, env_id) for reward, env_id in rows][-1]
    for env_id in dict.fromkeys(columns(rows)[1]):
        same_scale(at_once.scale(env_id), one_by_one.scale(env_id))
    assert at_once.environments == one_by_one.environments
    one_by_one.freeze()
    assert one_by_one(rows[-1][0], rows[-1][1]) == last


@EVERY
@QUICK
@given(parts=st.lists(ROWS, min_size=1, max_size=4))
def test_merge_equals_one_normalizer_with_all_rewards(method, parts):
    alone = RewardNormalizer(method)
    workers = [RewardNormalizer(method) for _ in parts]
    for worker, part in zip(workers, parts, strict=True):
        alone(*columns(part))
        worker(*columns(part))
    together = RewardNormalizer(method)
    together.merge(*workers[:-1], stored(workers[-1]))
    assert sorted(together.environments, key=str) == sorted(alone.environments, key=str)
    for env_id in alone.environments:
        same_scale(together.scale(env_id), alone.scale(env_id))


@EVERY
def test_merge_leaves_the_others_unchanged(method):
    other, together = RewardNormalizer(method), RewardNormalizer(method)
    other([1.0, 2.0], env_id="chess")
    before = other.state_dict()
    together.merge(other)
    together(99.0, env_id="chess")
    assert other.state_dict() == before


def test_merge_with_itself_counts_all_twice():
    normalizer = RewardNormalizer()
    normalizer([1.0, 3.0], env_id="chess")
    normalizer.merge(normalizer)
    assert normalizer.scale("chess").count == 4


@pytest.mark.parametrize("method", EXACT)
def test_call_from_threads_loses_no_reward(method):
    shared, alone = RewardNormalizer(method), RewardNormalizer(method)
    rewards = np.random.default_rng(0).normal(size=(40, 50))

    def add(row):
        shared(rewards[row], env_id=row % 4)
        for reward in rewards[row].tolist():
            shared(reward, env_id="single")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    for row in range(40):
        alone(rewards[row], env_id=row % 4)
    alone(rewards, env_id="single")
    for env_id in (0, 1, 2, 3, "single"):
        same_scale(shared.scale(env_id), alone.scale(env_id))


# State


@EVERY
@QUICK
@given(rows=ROWS, cut=st.integers(0, 40))
def test_load_state_dict_continues_exactly(method, rows, cut):
    whole, after = RewardNormalizer(method), RewardNormalizer(method)
    for row in rows[:cut]:
        whole(*row)
    after.load_state_dict(stored(whole))
    assert [whole(*row) for row in rows[cut:]] == [after(*row) for row in rows[cut:]]
    assert after.state_dict() == whole.state_dict()


def test_load_state_dict_continues_exactly_with_many_rewards():
    dice = np.random.default_rng(0)
    whole, after = RewardNormalizer("percentile"), RewardNormalizer("percentile")
    whole(dice.normal(size=10_000), env_id=1)
    after.load_state_dict(stored(whole))
    more = dice.normal(size=3_000).tolist()
    assert [whole(each, 1) for each in more] == [after(each, 1) for each in more]


@EVERY
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_copies_are_independent(method, again):
    normalizer = RewardNormalizer(method)
    normalizer([1.0, 3.0], env_id="chess")
    before = normalizer.state_dict()
    other = again(normalizer)
    assert other.state_dict() == before
    other(9.0, env_id="go")
    other(9.0, env_id="chess")
    assert normalizer.state_dict() == before


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"method": "mean"}, "`method` of the state must be .* got 'mean'"),
        ({"per_environment": False}, "`per_environment` of the state must be True, got False"),
        ({"frozen": 1}, "frozen: must be true or false, got 1"),
        ({"more": 1}, "more: unknown key"),
        ({"environments": {}}, "environments: must be a list, got a mapping"),
        ({"environments": [["a", {}, 1]]}, r"environments\[0\]: must have at most 2 items, got 3"),
        ({"environments": [["a", {}]]}, r"environments\[0\]\[1\]\.count: is required"),
        ({"environments": [[1.5, {}]]}, r"environments\[0\]\[0\]: must be .* got 1.5"),
        ({"environments": None}, "environments: must be a list, got null"),
    ],
    ids=str,
)
def test_load_state_dict_and_merge_reject_an_invalid_state_as_a_whole(method, change, expected):
    normalizer = RewardNormalizer(method)
    normalizer([1.0, 3.0], env_id="chess")
    before = normalizer.state_dict()
    for load in (normalizer.load_state_dict, normalizer.merge):
        with pytest.raises(StateError, match=expected):
            load({**before, **change})
    assert normalizer.state_dict() == before


WRONG = [
    ("running_mean_std", {"count": 0}, r"\.count: must be greater than or equal to 1, got 0"),
    ("running_mean_std", {"count": True}, r"\.count: must be an integer, got true"),
    ("running_mean_std", {"origin": math.nan}, r"\.origin: must be a finite number"),
    ("running_mean_std", {"offset": 1e300}, r"\.offset: must be .* equal to 2e\+100, got"),
    ("min_max", {"lowest": -1e300}, r"\.lowest: must be .* equal to -1e\+100, got"),
    (
        "running_mean_std",
        {"squares": -1.0},
        r"\.squares: must be .* equal to 0, got -1.0",
    ),
    ("min_max", {"lowest": 9.0}, "`lowest` must be at most `highest`, 3.0, got 9.0"),
    ("min_max", {"highest": "1"}, r'\.highest: must be a finite number, got "1"'),
    ("percentile", {"levels": []}, r"\.levels: must have at least 1 items, got 0"),
    ("percentile", {"levels": [[3.0, 1.0]]}, r"\.levels\[0\]: must be sorted"),
    ("percentile", {"levels": [[1.0, math.inf]]}, r"\.levels\[0\]\[1\]: must be a finite number"),
    (
        "percentile",
        {"levels": [[1.0] * 2048], "count": 2048},
        r"\[0\]: must have at most 2047 items",
    ),
    ("percentile", {"levels": [[1.0]]}, "must represent `count`, 2, rewards"),
    ("percentile", {"compactions": []}, "one entry per level"),
    (
        "percentile",
        {"compactions": [-1]},
        r"\[0\]: must be .* equal to 0, got -1",
    ),
    ("percentile", {"compactions": [1]}, "must be possible with `count` rewards"),
    (
        "running_mean_std",
        {"count": 10**400},
        r"\.count: must be .* equal to 9007199254740992",
    ),
]


@pytest.mark.parametrize(("method", "change", "expected"), WRONG, ids=lambda value: str(value)[:40])
def test_load_state_dict_rejects_impossible_statistics(method, change, expected):
    normalizer = RewardNormalizer(method)
    normalizer([1.0, 3.0], env_id="chess")
    state = stored(normalizer)
    state["environments"][0][1].update(change)
    with pytest.raises(StateError, match=expected):
        normalizer.load_state_dict(state)
    assert normalizer.scale("chess").count == 2


def test_load_state_dict_lists_missing_and_unexpected_keys():
    state = RewardNormalizer().state_dict() | {"more": 1}
    del state["frozen"]
    with pytest.raises(StateError) as caught:
        RewardNormalizer().load_state_dict(MappingProxyType(state))
    assert (caught.value.missing, caught.value.unexpected) == (("frozen",), ("more",))


@EVERY
def test_load_state_dict_rejects_statistics_of_another_method(method):
    other = RewardNormalizer("running_mean_std" if method != "running_mean_std" else "min_max")
    other([1.0, 3.0], env_id="chess")
    with pytest.raises(StateError) as caught:
        RewardNormalizer(method).load_state_dict(stored(other))
    expected = f"`method` of the state must be {method!r}, got {other.method!r}"
    assert str(caught.value) == expected


def test_load_state_dict_rejects_other_percentiles():
    state = RewardNormalizer("percentile").state_dict()
    with pytest.raises(
        StateError, match=r"`percentiles` of the state must be \(1.0, 99.0\), got \(5.0, 95.0\)"
    ):
        RewardNormalizer("percentile", percentiles=(1, 99)).load_state_dict(state)


def test_load_state_dict_rejects_a_duplicate_environment():
    normalizer = RewardNormalizer()
    normalizer(1.0, "chess")
    state = normalizer.state_dict()
    with pytest.raises(StateError, match=r"`environments\[1\]` has .* duplicate id 'chess'"):
        normalizer.load_state_dict({**state, "environments": state["environments"] * 2})


# Frozen


@EVERY
def test_freeze_stops_updates(method):
    normalizer = RewardNormalizer(method)
    normalizer([1.0, 3.0], env_id="chess")
    before = normalizer.state_dict()["environments"]
    normalizer.freeze()
    assert normalizer.is_frozen
    assert normalizer(3.0, env_id="chess") == 1.0
    assert normalizer([1e9], env_id="chess").tolist() == [10.0]
    assert normalizer.state_dict()["environments"] == before
    other = RewardNormalizer(method)
    other.load_state_dict(normalizer.state_dict())
    assert other.is_frozen
    other.unfreeze()
    other(3.0, env_id="chess")
    assert other.state_dict()["environments"] != before


@pytest.mark.parametrize("method", ["running_mean_std", "min_max", "percentile"])
def test_freeze_rejects_an_unknown_environment(method):
    normalizer = RewardNormalizer(method)
    normalizer(1.0, env_id="chess")
    normalizer.freeze()
    expected = r"environment 'go' has no rewards yet; the normalizer is frozen; known: \['chess'\]"
    for reward in (1.0, [1.0, 2.0]):
        with pytest.raises(InvalidArgumentError, match=expected):
            normalizer(reward, env_id="go")
    with pytest.raises(InvalidArgumentError, match="frozen; call unfreeze"):
        normalizer.merge(RewardNormalizer(method))


def test_freeze_of_a_population_accepts_an_unknown_environment():
    normalizer = RewardNormalizer("population")
    normalizer([1.0, 3.0], env_id="chess")
    normalizer.freeze()
    assert normalizer([3.0], env_id="go").tolist() == [1.0]
    assert normalizer.environments == ["chess"]


def test_call_divides_by_1_if_rewards_are_equal():
    normalizer = RewardNormalizer()
    normalizer([5.0, 5.0], env_id="chess")
    normalizer.freeze()
    assert normalizer(7.0, env_id="chess") == 2.0


@EVERY
def test_freeze_before_the_first_reward_rejects_rewards(method):
    normalizer = RewardNormalizer(method)
    normalizer.freeze()
    with pytest.raises(InvalidArgumentError, match=r"the normalizer is frozen; known: \[\]"):
        normalizer(1.0, env_id="chess")


# Invalid arguments


@EVERY
@pytest.mark.parametrize(
    ("reward", "env_id", "expected"),
    [
        (math.nan, "a", "`reward` must be a finite number up to 1e\\+100, got nan"),
        (math.inf, "a", "got inf"),
        (1e101, "a", r"got 1e\+101"),
        (True, "a", "got True"),
        (10**400, "a", "got <int>|got 1000"),
        ("1", "a", "`reward` must be a single value, a list or an array, got '1'"),
        (None, "a", "`reward` must be a number, got None, .* leave it out"),
        (np.float32("nan"), "a", "`reward` must be"),
        (1.0, None, "`env_id` is required"),
        (1.0, 1.5, "`env_id` must be an integer or a string of up to 1,000 characters, got 1.5"),
        (1.0, True, "got True"),
        (1.0, ["a"], r"`env_id` must be .* got \['a'\]"),
        (1.0, "a" * 1_001, "up to 1,000 characters"),
        ([1.0, math.nan, 2.0, -math.inf], ["a", "b", "c", "d"], "got nan in rows 1, 3"),
        ([1.0] * 9 + [math.nan] * 9, "a", "rows 9, 10, 11, 12, 13 and 4 more"),
        ([1.0, None], "a", "got None in row 1"),
        ([1.0, True], "a", "got True in row 1"),
        ([1.0, "1"], "a", "got '1' in row 1"),
        ([1.0, 10**400], "a", "`reward` can't be read|got 1000|got <int>"),
        ([[1.0], [1.0, 2.0]], "a", r"`reward` can't be read|got \[1.0\] in"),
        (np.array([True, False]), "a", "must contain numbers, got dtype bool"),
        (np.array([1j]), "a", "got dtype complex128"),
        (np.array(["1"]), "a", "got dtype <U1"),
        (np.array([1.0, -1e101]), "a", r"got -1e\+101 in row 1"),
        (np.ma.array([1.0, 2.0], mask=[True, False]), "a", "`reward` must not be masked"),
        (np.array([1e101]), "a", r"got 1e\+101 in row 0"),
        ([1.0, 2.0], ["a"], r"`env_id` has shape \(1,\) and `reward` \(2,\)"),
        ([1.0, 2.0], [["a", "b"]], r"`env_id` has shape \(1, 2\)"),
        ([1.0, 2.0], None, "`env_id` is required"),
        ([1.0], {"a"}, "`env_id` must be a single value, a list or an array, got {'a'}"),
        ([1.0, 2.0], ["a", 1.5], "got 1.5 in row 1"),
        ([1.0, 2.0], ["a", True], "got True in row 1"),
        ([1.0, 2.0], ["a", None], "got None in row 1"),
        ([1.0, 2.0], np.array([0.0, 1.0]), "got 0.0 in rows 0, 1"),
        ([1.0, 2.0], ["a", "b" * 1_001], "up to 1,000 characters"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_call_rejects_invalid_arguments_as_a_whole(method, reward, env_id, expected):
    normalizer = RewardNormalizer(method)
    normalizer([1.0, 3.0], env_id="chess")
    before = normalizer.state_dict()
    with pytest.raises(InvalidArgumentError, match=expected):
        normalizer(reward, env_id)
    assert normalizer.state_dict() == before


@EVERY
def test_max_environments_rejects_a_call_as_a_whole(method):
    normalizer = RewardNormalizer(method, max_environments=3)
    normalizer([1.0, 3.0], env_id=["a", "b"])
    before = normalizer.state_dict()
    expected = "can't add environment 'c' and 1 more: 2 are known, and `max_environments` is 3"
    with pytest.raises(InvalidArgumentError, match=expected):
        normalizer([1.0, 1.0, 1.0], env_id=["a", "c", "d"])
    many = RewardNormalizer(method)
    many([1.0, 1.0], env_id=["c", "d"])
    with pytest.raises(InvalidArgumentError, match=expected):
        normalizer.merge(many)
    assert normalizer.state_dict() == before
    normalizer(1.0, env_id="c")
    with pytest.raises(InvalidArgumentError, match="can't add environment 'd': 3 are known"):
        normalizer(1.0, env_id="d")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"method": "mean"}, "`method` must be 'running_mean_std', 'min_max'"),
        ({"method": None}, "`method` must be .* got None"),
        ({"per_environment": 1}, "`per_environment` must be of type bool, got 1"),
        (
            {"clip_range": (1, -1)},
            r"`clip_range` must be two finite, increasing numbers, got \(1, -1\)",
        ),
        ({"clip_range": (0, math.inf)}, "`clip_range` must be"),
        ({"clip_range": 10}, "got 10"),
        ({"percentiles": (5, 101)}, r"increasing numbers in \[0, 100\]"),
        ({"percentiles": (50, 50)}, "`percentiles` must be"),
        ({"max_environments": 0}, "`max_environments` must be an integer >= 1, got 0"),
        ({"max_environments": 2.5}, "got 2.5"),
    ],
    ids=str,
)
def test_reward_normalizer_rejects_invalid_arguments(arguments, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        RewardNormalizer(**arguments)


# Shapes and types of arguments


@pytest.mark.parametrize(
    "ids",
    [
        [3, 3, 5],
        (3, 3, 5),
        np.array([3, 3, 5]),
        np.array([3, 3, 5], dtype=np.int8),
        np.array([3, 3, 5], dtype=np.uint64),
        [np.int32(3), 3, 5],
        np.array([3, 3, 5], dtype=object),
    ],
    ids=["list", "tuple", "int64", "int8", "uint64", "mixed", "object"],
)
def test_call_accepts_integer_ids_of_any_type(ids):
    normalizer = RewardNormalizer()
    assert normalizer([1.0, 3.0, 9.0], ids).tolist() == [-1.0, 1.0, 0.0]
    assert normalizer.environments == [3, 5]
    assert {type(each) for each in normalizer.environments} == {int}


@pytest.mark.parametrize(
    "ids",
    [
        [-128, 127, -128],
        [2**64 - 1, 2**64 - 2, 2**64 - 1],
        [0, 2**63 - 1, 0],
        [-(2**63), 2**63 - 1, -(2**63)],
        [2**80, 5, 2**80],
        [7, 9, 7],
    ],
    ids=str,
)
@pytest.mark.parametrize("as_array", [False, True])
def test_call_accepts_integer_ids_of_any_size(ids, as_array):
    normalizer = RewardNormalizer()
    kinds = {-128: np.int8, 2**64 - 1: np.uint64, 2**80: object}
    given = np.array(ids, dtype=kinds.get(ids[0], np.int64)) if as_array else ids
    assert normalizer([1.0, 9.0, 3.0], given).tolist() == [-1.0, 0.0, 1.0]
    assert sorted(normalizer.environments) == sorted(set(ids))


def test_call_distinguishes_a_number_from_its_text():
    normalizer = RewardNormalizer()
    assert normalizer([1.0, 5.0, 3.0], [1, "1", 1]).tolist() == [-1.0, 0.0, 1.0]
    assert normalizer.environments == [1, "1"]
    other = RewardNormalizer()
    other.load_state_dict(stored(normalizer))
    assert other.environments == [1, "1"]


def test_call_accepts_an_array_of_strings_as_ids():
    normalizer = RewardNormalizer()
    assert normalizer(np.array([1.0, 3.0]), np.array(["a", "a"])).tolist() == [-1.0, 1.0]
    assert normalizer(3.0, np.str_("a")) == pytest.approx(1 / math.sqrt(2))
    assert {type(each) for each in normalizer.environments} == {str}


def test_call_returns_the_shape_of_the_rewards():
    normalizer = RewardNormalizer()
    found = normalizer(np.array([[1, 3], [5, 5]]), np.array([[0, 0], [1, 1]]))
    assert found.tolist() == [[-1.0, 1.0], [0.0, 0.0]]
    assert normalizer(np.float32(2.0), np.int64(0)) == 0.0
    assert normalizer(np.array(2.0), np.array(0)) == 0.0
    assert normalizer([2.0, 2.0], np.array(0)).tolist() == [0.0, 0.0]


@EVERY
def test_call_without_rewards_returns_an_empty_array(method):
    normalizer = RewardNormalizer(method)
    for env_id in ([], "chess", np.array([], dtype=int), np.array([], dtype=str)):
        assert normalizer([], env_id).shape == (0,)
    assert normalizer.environments == []


def test_call_leaves_the_given_array_unchanged():
    rewards = np.array([1.0, 3.0])
    RewardNormalizer()(rewards, "chess")
    assert rewards.tolist() == [1.0, 3.0]


@EVERY
@QUICK
@given(
    st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=20),
    st.floats(-1e100, 1e100),
)
def test_call_returns_finite_numbers(method, rewards, later):
    normalizer = RewardNormalizer(method, clip_range=None)
    assert np.isfinite(normalizer(rewards, "chess")).all()
    normalizer.freeze()
    assert math.isfinite(normalizer(later, "chess"))
