"""Ensemble: one score of several rubrics, their disagreement, and how much of it is accepted."""

import anyio
import pytest

from guerdon import (
    Ensemble,
    ExponentialDiscountingTrajectoryRubric,
    Guarded,
    Rollout,
    Rubric,
    RubricScorer,
    WeightedSum,
    open_reward,
)
from guerdon.config.runtime import RewardRuntime
from guerdon.errors import InvalidArgumentError, RubricError, TrajectoryError
from guerdon.rubrics import LLMJudge
from guerdon.services import ChatModel


class Fixed(Rubric):
    """The same score."""

    def __init__(self, value, score_range=None):
        super().__init__()
        self.value = value
        self.score_range = score_range

    def forward(self, action, observation):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class AsyncFixed(Fixed):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


class Final(ExponentialDiscountingTrajectoryRubric):
    """The action of the last step."""

    def score_trajectory(self, trajectory):
        return trajectory[-1][0]


def of(*values, **arguments):
    return Ensemble([Fixed(value) for value in values], **arguments)


def play(rubric, actions):
    last = len(actions) - 1
    return [rubric(action, {"done": step == last}) for step, action in enumerate(actions)]


@pytest.mark.parametrize(
    ("reduce", "scores", "expected"),
    [
        ("mean", (0.1, 0.1, 0.1), 0.1),
        ("mean", (1.0, 0.0, 0.5, 0.5), 0.5),
        ("median", (0.9, 0.0, 0.2), 0.2),
        ("median", (0.75, 0.25), 0.5),
        ("min", (0.9, -1.0, 0.2), -1.0),
        ("majority", (1.0, 0.0, 1.0), 1.0),
        ("majority", (1.0, 0.0), 0.0),
        ("majority", (0.2, 0.9, 0.8), 0.2),
    ],
)
def test_ensemble_reduces_the_scores_of_its_members(reduce, scores, expected):
    assert of(*scores, reduce=reduce)(None, None) == expected


def test_ensemble_reduces_as_llm_judge_aggregates():
    for choice in ("mean", "median", "min", "majority"):
        model = ChatModel("http://localhost:1", "m")
        assert LLMJudge("{action}", model, aggregate=choice).aggregate == choice
        assert of(0.5, reduce=choice).reduce == choice
    message = "must be 'majority', 'mean', 'median' or 'min', got 'max'"
    with pytest.raises(InvalidArgumentError, match=message):
        of(0.5, reduce="max")


def test_ensemble_disagreement_is_a_component():
    score = of(1.0, 0.0, 0.0, 0.0).score(None, None)
    assert score.components() == {
        "rubric_0": 1.0,
        "rubric_1": 0.0,
        "rubric_2": 0.0,
        "rubric_3": 0.0,
        "disagreement": pytest.approx(0.4330127),
    }
    assert of(0.5, 0.5).score(None, None)["disagreement"].value == 0.0


def test_ensemble_disagreement_is_in_the_row_of_a_rollout():
    rollout = Rollout.from_row({"id": 1, "messages": [{"role": "assistant", "content": "x"}]})
    with RubricScorer(of(1.0, 0.0)) as scorer:
        row = scorer.score(rollout)
    assert (row["score"], row["components"]["disagreement"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("reduce", "scores", "agreement"),
    [
        ("majority", (1.0, 1.0, 0.0), 2 / 3),  # the share that voted with the result
        ("majority", (1.0, 0.0, 0.0, 0.0, 1.0), 3 / 5),
        ("mean", (1.0, 0.0), 0.5),
        ("min", (1.0, 1.0, 0.0), 1 / 3),
        ("median", (0.7, 0.8, 0.75), 29 / 30),
        ("mean", (0.4,), 1.0),
    ],
)
def test_ensemble_agree_is_the_lowest_accepted_agreement(reduce, scores, agreement):
    ensemble = of(*scores, reduce=reduce, agree=agreement)
    ensemble(None, None)
    ensemble.agree = min(agreement + 1e-8, 1.0)
    if agreement < 1:
        with pytest.raises(RubricError, match=f"have an agreement of {agreement:.3g}, wanted at"):
            ensemble(None, None)


def test_ensemble_agree_accepts_the_exact_share_of_votes():
    for members in range(1, 30):
        for votes in range(members // 2 + 1, members + 1):
            scores = [1.0] * votes + [0.0] * (members - votes)
            assert of(*scores, reduce="majority", agree=votes / members)(None, None) == 1.0


def test_ensemble_agree_is_relative_to_the_range_of_the_members():
    wide = [Fixed(0.0, (-10.0, 10.0)), Fixed(2.0, (0.0, 1.0))]
    assert Ensemble(wide, agree=0.95)(None, None) == 1.0
    wide[1].score_range = None
    with pytest.raises(RubricError, match=r"0, 2 have an agreement of 0, wanted at least 0.95"):
        Ensemble(wide, agree=0.95)(None, None)


def test_ensemble_whose_members_disagree_fails_and_has_no_score():
    score = of(1.0, 0.0, 0.0, agree=0.9).score(None, None)
    assert (score.value, score.status) == (None, "failed")
    assert score.error == (
        "RubricError: the members disagree: 1, 0, 0 have an agreement of 0.556, wanted at least 0.9"
    )
    assert score.components()["disagreement"] == pytest.approx(0.4714045)
    whole = WeightedSum([of(1.0, 0.0, agree=0.9), Fixed(1.0)], [1.0, 1.0]).score(None, None)
    assert whole.value is None
    assert "rubric 'rubric_0': the members disagree" in whole.error


def test_ensemble_whose_members_disagree_can_be_guarded():
    score = Guarded(of(1.0, 0.0, agree=0.9), on_error="zero").score(None, None)
    assert (score.value, score.status) == (0.0, "failed")


@pytest.mark.parametrize("kind", [Fixed, AsyncFixed])
@pytest.mark.anyio
async def test_ensemble_with_a_member_that_fails_fails(kind):
    ensemble = Ensemble([kind(1.0), kind(OSError("down"))], "majority")
    score = await ensemble.score_async(None, None)
    assert (score.value, score.error) == (None, "OSError: down")
    with pytest.raises(OSError, match="down"):
        await ensemble.evaluate(None, None)


@pytest.mark.anyio
async def test_ensemble_evaluates_async_members_concurrently():
    arrived, all_there = [], anyio.Event()

    async def meets(action, observation):
        arrived.append(action)
        if len(arrived) == 3:
            all_there.set()
        await all_there.wait()
        return 1.0

    with anyio.fail_after(5):
        score = await Ensemble([meets] * 3).score_async(None, None)
    assert (score.value, score["disagreement"].value) == (1.0, 0.0)


@pytest.mark.parametrize("agree", [-0.1, 1.1, "1", True])
def test_ensemble_rejects_an_agreement_outside_of_what_is_accepted(agree):
    with pytest.raises(InvalidArgumentError, match=r"`agree` must be in \[0, 1\], got"):
        of(1.0, agree=agree)


def test_ensemble_rejects_no_members():
    with pytest.raises(InvalidArgumentError, match=r"`rubrics` must contain at least one rubric"):
        Ensemble([])


def test_ensemble_state_and_fingerprint_are_its_configuration():
    ensemble, other = of(1.0, 0.0), of(1.0, 0.0, reduce="median", agree=0.5)
    assert ensemble.fingerprint() != other.fingerprint()
    ensemble.load_state_dict(other.state_dict())
    assert (ensemble.reduce, ensemble.agree) == ("median", 0.5)
    assert ensemble.fingerprint() == other.fingerprint()
    before = ensemble.fingerprint()
    ensemble(None, None)
    assert ensemble.fingerprint() == before


def test_reward_runtime_update_changes_the_agreement_of_an_ensemble():
    runtime = RewardRuntime(of(1.0, 0.0))
    runtime.update({"per_turn": [{"name": "reward", "config": {"agree": 0.6}}]})
    ensemble = of(1.0, 0.0)
    runtime.apply(ensemble)
    with pytest.raises(RubricError, match="the members disagree"):
        ensemble(None, None)


def test_ensemble_takes_another_member():
    ensemble = of(1.0, 0.0)
    ensemble.rubric_2 = Fixed(0.2)
    assert list(ensemble.score(None, None).components()) == [
        *("rubric_0", "rubric_1", "rubric_2", "disagreement")
    ]
    assert ensemble(None, None) == pytest.approx(0.4)


# Episodes


def test_ensemble_compares_trajectory_rubrics_at_the_end():
    ensemble = Ensemble([Final(gamma=0.5), Fixed(1.0)], agree=0.9)
    assert play(ensemble, [0.0, 0.0, 0.9]) == [0.5, 0.5, 0.95]
    assert ensemble.compute_step_rewards() == pytest.approx([0.6125, 0.725, 0.95])
    ensemble.reset()
    assert "disagreement" not in ensemble.score(0.0, {"done": False}).components()
    assert "disagreement" in ensemble.score(1.0, {"done": True}).components()


def test_compute_step_rewards_of_ensemble_are_those_of_a_weighted_sum_of_equal_weights():
    def members():
        return [Final(gamma=0.5), Final(gamma=0.0), Fixed(0.5), Fixed(0.25)]

    actions = [0.3, 0.1, 0.7]
    ensemble, weighted = Ensemble(members()), WeightedSum(members(), [0.25] * 4)
    assert play(ensemble, actions) == play(weighted, actions)
    assert ensemble.compute_step_rewards() == weighted.compute_step_rewards()


def test_compute_step_rewards_of_ensemble_whose_members_disagree_raises():
    ensemble = Ensemble([Final(gamma=1.0), Fixed(1.0)], agree=0.9)
    with pytest.raises(RubricError, match=r"0, 1 have an agreement of 0.5"):
        play(ensemble, [0.0, 0.0])
    with pytest.raises(TrajectoryError, match=r"step 1 isn't known.*the members disagree"):
        ensemble.compute_step_rewards()


# Files


def test_open_reward_finds_an_ensemble_of_a_file_by_its_name(tmp_path):
    (tmp_path / "panel.py").write_text(
        "from guerdon import Ensemble, LengthBounds, RegexMatch\n"
        "def panel(word='please', agree=None):\n"
        "    return Ensemble([RegexMatch(word), LengthBounds(maximum=9)], 'min', agree=agree)\n"
        "polite = panel()\n"
    )
    (tmp_path / "reward.yaml").write_text(
        "schema_version: '1.0'\n"
        "per_turn:\n"
        "  - {name: polite, rubric: 'panel.py:polite'}\n"
        "  - {name: thanks, rubric: 'panel.py:panel', config: {word: thank, agree: 0.5}}\n"
    )
    with open_reward(str(tmp_path / "reward.yaml")) as reward:
        assert reward.ranges()["polite"].source == "declared"
        assert reward("please, thanks", None) == 0.0
        assert reward.compute("thanks", None) == (1.0, {"polite": 0.0, "thanks": 1.0})
        assert reward.score("thanks", None)["polite.disagreement"].value == 0.5
        reward.thanks.agree = 0.9
        assert reward.score("please", None).error == (
            "RubricError: rubric 'thanks': the members disagree: 0, 1 have an agreement of 0.5, "
            "wanted at least 0.9"
        )
