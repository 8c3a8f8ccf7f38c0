"""Rewards shape learning: the direction of each experiment, and that the paths agree."""

import asyncio

import numpy as np
import pytest

from examples.arena.public_path import PublicTrainer
from examples.shaping import failures, gate, live_config, normalize, schedule
from examples.shaping.__main__ import main
from examples.shaping.curves import LOOP, RATE, Experiment, first_above_half, learn, plot, table
from examples.shaping.worlds import Dials, Questions, Repair, Road
from guerdon import EnvPool, EvaluateResult, RewardPipeline, StepOutput
from guerdon.arena import METHODS, Method, Model, WorldEnvironment, exact_values, optimal_value
from guerdon.arena import uniform_policy as uniform
from guerdon.arena.learners import softmax
from guerdon.arena.statistics import median

pytestmark = pytest.mark.edge  # a real server, and training over several seconds

SEEDS = range(5)


def interval(values):
    found = median(values, 2_000)
    return found.low, found.high


def is_above(ours, theirs):
    """Return whether the interval of one median is above that of another."""
    return interval(ours)[0] > interval(theirs)[1]


# (a) A schedule ----------------------------------------------------------------------------------


def test_reward_runtime_fades_the_rewards_of_the_model_by_the_schedule_of_the_file():
    reward = schedule.rewards(Model.of(Dials()), {})
    clicks = [reward(update).reward.max(-1).max(-1)[:8] for update in (0, 40, 80, 200)]
    for click, factor in zip(clicks, (1.0, 0.5, 0.0, 0.0), strict=True):
        np.testing.assert_allclose(click, [*[0.1 * factor] * 7, 1 + 0.1 * factor])


def test_schedule_that_fades_learns_sooner_than_no_shaping_and_shaping_that_never_ends_farms():
    found = schedule.run(seeds=SEEDS, updates=150).curves
    none, fades, never = (found[label] for label in schedule.CHANGES)
    assert is_above(first_above_half(none), first_above_half(fades))
    assert is_above(fades[:, -1], never[:, -1])
    assert interval(never[:, -1])[1] < 0.5


def test_shaping_that_never_ends_is_farmed_for_more_than_opening_the_lock_pays():
    model = Model.of(Dials())
    reward = schedule.rewards(model, schedule.CHANGES["shaping that never ends"])
    trained = reward(0)
    earned = learn(trained, reward, updates=150, seeds=SEEDS)[:, -1]
    assert interval(earned)[0] > 1 + 8 * 0.1


# (b) A gate --------------------------------------------------------------------------------------


def test_weighted_sum_is_hacked_and_a_gate_in_a_sequential_is_not():
    found = gate.run(seeds=SEEDS, updates=150)
    light, _, heavy, gated = found.curves.values()
    repaired = found.other["repaired: Sequential(Gate(kept), passed)"]
    assert is_above(light[:, -1], gated[:, -1])
    assert interval(first_above_half(light))[1] < 20
    assert interval(first_above_half(gated))[0] == np.inf
    assert interval(heavy[:, -1])[1] < 0.5
    assert interval(repaired[:, -1])[0] > 0.5


def test_weighted_sum_pays_more_for_repairs_than_for_the_hack_that_is_learned():
    model = Model.of(Repair())
    hack = 1.0  # tests that pass, and weren't kept
    for label in ("passed + 0.25 kept", "passed + 0.5 kept", "passed + kept"):
        assert optimal_value(model.with_reward(gate.REWARDS[label])) > hack


# (c) Failures ------------------------------------------------------------------------------------


def test_masked_failures_learn_the_best_answer_and_failures_as_zero_avoid_it():
    found = failures.run(seeds=SEEDS).curves
    ends = {label: values[:, -1] for label, values in found.items()}
    assert is_above(ends["fails on any answer: masked"], ends["fails on any answer: as 0"])
    masked, zero = (ends[f"fails on reasoned answers: {each}"] for each in ("masked", "as 0"))
    assert interval(masked)[0] > 0.9
    assert interval(zero)[1] < 1 / 3


@pytest.mark.parametrize("timeouts", failures.FAILING.values(), ids=list(failures.FAILING))
def test_judge_fails_in_a_tenth_of_the_steps_of_the_uniform_policy(timeouts):
    model = Model.of(Questions(timeouts))
    failed = np.isnan(failures.masked(model, failures.Judge()).reward) & (model.probability > 0)
    share = (failed * model.probability).sum(-1) * uniform(model)
    assert share[:3].sum(-1) == pytest.approx(0.1)


class Judged(PublicTrainer):
    """A trainer whose rewards are those of the environment's judge, None where it fails."""

    failed = 0

    def _score(self, record):
        rewards = record.env_rewards
        if None in rewards:
            self.failed += 1
            return EvaluateResult(error="the judge failed")
        steps = [StepOutput(step_index=turn, base_reward=each) for turn, each in enumerate(rewards)]
        return EvaluateResult(score=sum(rewards), step_outputs=steps)


def test_apply_credit_on_rewards_of_none_takes_the_updates_of_the_masked_model():
    model, updates = Model.of(Questions({"reason": 0.3})), 5

    def environment():
        made = WorldEnvironment(model)
        made.rubric = failures.Judge()
        return made

    async def trained():
        trainer = Judged(
            model, METHODS["grpo"], seed=3, learning_rate=RATE, groups=LOOP.groups
        )  # fmt: skip
        async with EnvPool(environment, n=LOOP.episodes) as pool:
            for _ in range(updates):
                update = await trainer.update(pool)
        return trainer, update

    trainer, update = asyncio.run(trained())
    assert 0 < trainer.failed < updates * LOOP.episodes
    steps = [(each.is_score_valid, step) for each in update.rollouts for step in each.steps]
    assert all((step.advantage is None) != is_valid for is_valid, step in steps)
    in_tables = learn(
        model, failures.masked(model, failures.Judge()), updates=updates, seeds=[3],
        method=Method("masked grpo", failures.masked_grpo),
    )  # fmt: skip
    value = exact_values(model, softmax(trainer.logits)).value
    assert value == pytest.approx(in_tables[0, -1], abs=1e-12)


# (d) A live change -------------------------------------------------------------------------------


def test_post_config_in_mid_training_on_a_served_environment_turns_the_policies_around():
    model, updates, at = Model.of(Road()), 45, live_config.CHANGE_AT
    served, change = asyncio.run(live_config.train_served(model, seeds=[0, 1, 2], updates=updates))
    assert change["by"] == live_config.CHANGE["by"]
    assert {each["what"] for each in change["changes"]} == {
        "per_turn.left_town.weight",
        "per_turn.right_town.weight",
    }
    assert is_above(served[:, 0], served[:, at])  # the left town paid more
    assert is_above(served[:, -1], served[:, at])
    with RewardPipeline.of(live_config.REWARD) as pipeline:
        rubric = pipeline.make()
    first = model.with_reward(rubric)
    rubric.update_weights(live_config.CHANGE["weights"])
    second = model.with_reward(rubric)
    in_tables = learn(
        model, lambda update: first if update < at else second, updates=updates, seeds=[0, 1, 2]
    )
    np.testing.assert_allclose(served, in_tables, rtol=0, atol=1e-9)


# (e) Normalization -------------------------------------------------------------------------------


def test_reward_normalizer_learns_the_task_of_small_rewards_as_soon_as_that_of_large_ones():
    found = normalize.run(seeds=SEEDS, updates=100).curves
    half = {label: first_above_half(values) for label, values in found.items()}
    assert is_above(half["small rewards, RLOO"], half["small rewards, RLOO, normalized"])
    assert is_above(half["small rewards, RLOO"], half["large rewards, RLOO"])
    # GRPO divides by the deviation of each task's scores: the scale has no effect.
    low, high = interval(half["small rewards, GRPO"])
    assert low <= interval(half["small rewards, RLOO, normalized"])[1]
    assert high >= interval(half["small rewards, RLOO, normalized"])[0]


# The command and its output ----------------------------------------------------------------------


def test_table_has_medians_with_intervals_and_never():
    rising = np.linspace(0, [0.8, 0.9, 1.0], 11).T
    experiment = Experiment("x", "what is measured", {"rising": rising, "flat": 0 * rising})
    head, _, first, second = table(experiment)
    assert head == "x: what is measured"
    assert first.split() == ["rising", "0.90", "[0.80,", "1.00]", "6", "[6,", "7]"]
    assert second.split() == ["flat", "0.00", "[0.00,", "0.00]", "never"]


def test_plot_writes_the_same_svg_file_for_the_same_curves(tmp_path):
    pytest.importorskip("matplotlib")
    experiment = Experiment("x_y", "share", {"one": np.linspace(0, [0.5, 1.0], 5).T})
    path = plot(experiment, tmp_path)
    assert path.name == "shape-x-y.svg"
    drawn = path.read_text()
    assert ">share<" in drawn
    assert plot(experiment, tmp_path).read_text() == drawn


def test_main_runs_the_chosen_experiments(monkeypatch, capsys):
    experiment = Experiment("x", "share", {"flat": np.zeros((2, 3))})
    runs = {"a": None, "c": lambda: experiment}
    monkeypatch.setattr("examples.shaping.__main__.EXPERIMENTS", runs)
    monkeypatch.setattr("sys.argv", ["shaping", "--only", "c"])
    main()
    printed = capsys.readouterr().out
    assert printed.startswith("(c) x: share\n")
    assert "never" in printed
