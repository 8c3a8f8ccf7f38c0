"""From an evaluation to the metadata of an observation, for every way of writing a step."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from guerdon import (
    Environment,
    EnvPool,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    GenericEnvClient,
    Guarded,
    Observation,
    Rubric,
    RubricComposer,
    RubricDict,
    Sequential,
    State,
    TrajectoryRubric,
    WeightedSum,
    create_app,
)
from guerdon.envs import ASGITransport, ConfiguredEnv
from guerdon.envs.runner import EnvAdapter
from guerdon.errors import AsyncRubricError, EnvDefinitionError, InvalidObservationError
from tests.envs.worlds import (
    AsyncDown,
    AsyncHalf,
    Board,
    Down,
    Half,
    Move,
    Value,
    World,
    unsigned,
)

# The ways in which an author may write a step -------------------------------------------------


class ByScore(World):
    def step(self, action, timeout_s=None, **kwargs):
        return self.score(action, Board())


class ByReward(World):
    def step(self, action, timeout_s=None, **kwargs):
        board = Board()
        board.reward = self.rubric(action, board)
        return board


class ByWithReward(World):
    def step(self, action, timeout_s=None, **kwargs):
        board = Board()
        return board.with_reward(self.rubric(action, board))


class ByApplying(World):
    def step(self, action, timeout_s=None, **kwargs):
        board = Board()
        return board.with_reward(self._apply_rubric(action, board))


class ByMaking(World):
    def step(self, action, timeout_s=None, **kwargs):
        return Board(reward=self.rubric(action, Board()))


class Async(Environment[Move, Board, State]):
    state = State()

    async def reset_async(self, seed=None, **kwargs):
        return Board()


class ByScoreAsync(Async):
    async def step_async(self, action, timeout_s=None, **kwargs):
        return await self.score_async(action, Board())


class ByEvaluate(Async):
    async def step_async(self, action, timeout_s=None, **kwargs):
        board = Board()
        return board.with_reward(await self.rubric.evaluate(action, board))


class ByApplyingAsync(Async):
    async def step_async(self, action, timeout_s=None, **kwargs):
        board = Board()
        board.reward = await self._apply_rubric_async(action, board)
        return board


WAYS = [
    ByScore, ByReward, ByWithReward, ByApplying, ByMaking,
    ByScoreAsync, ByEvaluate, ByApplyingAsync,
]  # fmt: skip


async def awaited(awaitable):
    return await awaitable


def driven(environment, action=None, *, keeps_trees=False):
    """A step, taken as a server takes it."""
    adapter = EnvAdapter(environment)
    adapter.keeps_trees = keeps_trees
    action = Move() if action is None else action
    if adapter.step_is_async:
        return asyncio.run(awaited(adapter.step(action)))
    return adapter.step(action)


def pooled(environment, action=None):
    """A step, taken as a pool takes it."""

    async def main():
        async with EnvPool(lambda: environment, n=1, timeout_s=5) as pool:
            await pool.reset_batch()
            return (await pool.step_batch([Move() if action is None else action]))[0]

    return asyncio.run(main())


@pytest.fixture(params=[driven, pooled])
def take_step(request):
    return request.param


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("half", [Half, AsyncHalf])
def test_step_metadata_components_are_reported_however_the_step_is_written(take_step, way, half):
    rubric = WeightedSum([Value(), Gate(half(), threshold=0.5)], [1, 1])
    board = take_step(way(rubric), Move(value=2))
    assert board.reward == 2.5
    assert unsigned(board.metadata) == {
        "reward_components": {"rubric_0": 2.0, "rubric_1": 0.5, "rubric_1.rubric": 0.5}
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("down", [Down, AsyncDown])
def test_step_metadata_a_failed_rubric_is_reported_with_its_path_however_the_step_is_written(
    take_step, way, down
):
    rubric = Sequential(Half(), WeightedSum([Half(), down()], [1, 1]))
    board = take_step(way(rubric))
    assert board.reward is None
    assert board.metadata["reward_error"] == (
        "rubric 'rubric_1.rubric_1': OSError: the judge is down"
    )
    assert board.metadata["reward_components"]["rubric_0"] == 0.5
    assert set(board.metadata["reward_components"]) <= {"rubric_0", "rubric_1.rubric_0"}
    assert not board.done  # a reward that failed ends no episode
    assert "error" not in board.metadata


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), None, "good"])
@pytest.mark.parametrize("is_async", [False, True])
def test_step_metadata_a_score_that_is_no_finite_number_is_a_failure(way, wrong, is_async):
    class Wrong(Rubric):
        def forward(self, action, observation):
            return wrong

    class AsyncWrong(Rubric):
        async def forward(self, action, observation):
            return wrong

    board = driven(way(Sequential(Half(), AsyncWrong() if is_async else Wrong())))
    assert board.reward is None
    assert board.metadata["reward_error"].startswith("rubric 'rubric_1': InvalidScoreError: ")
    assert board.metadata["reward_components"] == {"rubric_0": 0.5}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("raised", [ValueError, AssertionError, TypeError])
def test_step_metadata_what_pydantic_would_wrap_is_reported_unchanged(way, raised):
    """A reward that is awaited while it is set is awaited inside of a validator."""

    class Raises(Rubric):
        async def forward(self, action, observation):
            raise raised("mine")

    board = driven(way(Sequential(Raises())))
    assert board.reward is None
    assert board.metadata["reward_error"] == f"rubric 'rubric_0': {raised.__name__}: mine"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("down", [Down, AsyncDown])
def test_step_metadata_a_failure_that_is_dealt_with_is_reported_beside_the_reward(way, down):
    rubric = WeightedSum([Half(), Guarded(down(), on_error="zero")], [1, 1])
    board = driven(way(rubric))
    assert board.reward == 0.5
    assert board.metadata["reward_dealt_with"] == (
        "rubric 'rubric_1.rubric': OSError: the judge is down"
    )
    assert "reward_error" not in board.metadata


def test_step_metadata_a_rubric_that_is_a_leaf_has_no_components():
    assert unsigned(driven(ByReward(Half())).metadata) == {"reward_components": {}}
    assert unsigned(driven(ByScore(Half())).metadata) == {"reward_components": {}}


def test_step_metadata_a_failed_leaf_has_no_path():
    assert driven(ByReward(Down())).metadata["reward_error"] == "OSError: the judge is down"


def scores_of(tree, prefix=""):
    """The values below the root of a tree by dotted name."""
    found = {}
    for child in tree.get("children", ()):
        name = f"{prefix}{child['name']}"
        found |= {name: child["value"]} if "value" in child else {}
        found |= scores_of(child, f"{name}.")
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fails", [False, True])
def test_step_metadata_the_tree_agrees_with_the_reward_and_the_components(way, fails):
    def environment():
        # In order: of a sum that fails, it would depend on the threads which child has a score.
        last = Down() if fails else WeightedSum([Half(), Half()], [0.5, 2.0])
        return way(Sequential(Value(), Half(), last))

    plain = driven(environment()).metadata
    board = driven(environment(), keeps_trees=True)
    tree = board.metadata.pop("reward_tree")
    assert board.metadata == plain
    assert (tree.get("value"), tree["status"]) == (
        (None, "failed") if fails else (board.reward, "scored")
    )
    assert board.reward == (None if fails else 1.25)
    assert scores_of(tree) == board.metadata["reward_components"]
    assert tree.get("error") == ("OSError: the judge is down" if fails else None)


@pytest.mark.parametrize("keeps_trees", [False, True])
def test_step_metadata_a_failure_whose_text_cant_be_made_is_reported_nevertheless(keeps_trees):
    class Unsayable(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    class Raises(Rubric):
        def forward(self, action, observation):
            raise Unsayable

    for way in (ByScore, ByReward):
        board = driven(way(Raises()), keeps_trees=keeps_trees)
        assert board.reward is None
        assert "Unsayable" in board.metadata["reward_error"]


class ByCompute(World):
    """As the draft on reward pipelines writes a step."""

    def step(self, action, timeout_s=None, **kwargs):
        board = Board(value=action.value, done=True)
        board.reward, self.components = self.rubric.compute(action, board)
        return board


class ByComputeAsync(Async):
    async def step_async(self, action, timeout_s=None, **kwargs):
        board = Board(value=action.value, done=True)
        board.reward, self.components = await self.rubric.compute_async(action, board)
        return board


@pytest.mark.parametrize(("way", "half"), [
    (ByCompute, Half), (ByComputeAsync, Half), (ByComputeAsync, AsyncHalf),
])  # fmt: skip
def test_step_metadata_compute_of_a_composer_is_recorded_like_a_call(take_step, way, half):
    def composer():
        return RubricComposer({"a": Sequential(Value()), "b": half()}, [1, 2], normalize=False)

    board = take_step(way(composer()), Move(value=2))
    expected = (ByReward if way is ByCompute else ByEvaluate)(composer())
    expected = take_step(expected, Move(value=2))
    assert board.metadata == expected.metadata
    assert (board.reward, board.metadata["reward_weights"]) == (3.0, {"a": 1.0, "b": 2.0})
    assert board.metadata["reward_components"] == {"a": 2.0, "a.rubric_0": 2.0, "b": 0.5}
    assert len(board.metadata["reward_fingerprint"]) == 16


@pytest.mark.parametrize("way", [ByCompute, ByComputeAsync])
def test_step_metadata_a_failed_compute_of_a_composer_is_reported_with_its_path(way):
    board = driven(way(RubricComposer({"a": Half(), "b": Down()}, [1, 2], normalize=False)))
    assert (board.reward, board.metadata["reward_failed"]) == (None, "b")
    # In async code, b may fail before a is scored.
    possible = [{"a": 0.5}, {}] if way is ByComputeAsync else [{"a": 0.5}]
    assert board.metadata["reward_components"] in possible


def test_step_metadata_compute_of_a_composer_has_the_step_rewards_of_the_episode():
    class Plays(ByCompute):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board(done=action.value == 0)
            board.reward, _ = self.rubric.compute(action, board)
            return board

    adapter = EnvAdapter(
        Plays(RubricComposer({"a": Value(), "b": Length(gamma=0.5)}, [1, 1], False))
    )
    adapter.reset()
    adapter.step(Move(value=0.25))
    board = adapter.step(Move(value=0))
    assert board.metadata["step_rewards"] == [0.25 + 0.5 * board.reward, board.reward]


def test_step_metadata_a_curriculum_sees_what_compute_of_a_composer_returned():
    stages = [
        {
            "name": "first",
            "weights": {"a": 1.0},
            "until": {"component": "a", "mean_above": 0.1, "over": 2},
        },
        {"name": "last", "weights": {"a": 2.0}},
    ]
    config = {
        "per_turn": [{"name": "a", "rubric": "tests.envs.worlds.Value", "weight": 1.0}],
        "normalize": False,
        "curriculum": stages,
    }
    with ConfiguredEnv(ByCompute, config) as configured:
        adapter = EnvAdapter(configured())
        rewards = []
        for _ in range(3):
            adapter.reset()
            rewards.append(adapter.step(Move()).reward)
    assert rewards == [1.0, 1.0, 2.0]


class ByTree(World):
    """Reads the score of the tree, as code that wants its reasons does."""

    def step(self, action, timeout_s=None, **kwargs):
        board = Board(done=action.value == 0)
        self.found = self.rubric.score(action, board)
        return board.with_reward(self.found.value)


class ByTreeAsync(Async):
    async def step_async(self, action, timeout_s=None, **kwargs):
        board = Board(done=action.value == 0)
        self.found = await self.rubric.score_async(action, board)
        return board.with_reward(self.found.value)


@pytest.mark.parametrize("way", [ByTree, ByTreeAsync])
def test_step_metadata_score_of_a_rubric_is_recorded_like_a_call(way):
    world = way(WeightedSum([Half(), Value(), Length(gamma=0.5)], [1, 1, 1]))
    board = driven(world, Move(value=0))
    assert board.reward == world.found.value == 1.5
    assert board.metadata["reward_components"] == world.found.components()
    assert board.metadata["reward_fingerprint"] == world.rubric.fingerprint()
    assert board.metadata["step_rewards"] == [1.5]


def test_step_metadata_a_score_that_failed_is_reported_with_its_path():
    board = driven(ByTree(Sequential(Half(), Down())))
    assert board.reward is None
    assert board.metadata["reward_failed"] == "rubric_1"
    assert board.metadata["reward_components"] == {"rubric_0": 0.5}


# What the author does beside scoring ----------------------------------------------------------


def test_step_metadata_components_are_written_beside_the_authors_own_reward():
    class Doubles(World):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board()
            return board.with_reward(2 * self.rubric(action, board))

    board = driven(Doubles(Sequential(Half())))
    assert (board.reward, board.metadata["reward_components"]) == (1.0, {"rubric_0": 0.5})


def test_step_metadata_an_author_may_deal_with_a_failure():
    class Deals(World):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board()
            try:
                return board.with_reward(self.rubric(action, board))
            except OSError:
                return board.with_reward(-1)

    board = driven(Deals(Sequential(Half(), Down())))
    assert board.reward == -1.0
    assert "reward_error" not in board.metadata
    assert "OSError: the judge is down" in board.metadata["reward_dealt_with"]
    assert board.metadata["reward_components"] == {"rubric_0": 0.5}


def test_step_metadata_of_several_evaluations_in_a_step_the_last_is_reported():
    class Twice(World):
        def step(self, action, timeout_s=None, **kwargs):
            self.rubric(Move(value=9), Board())
            board = Board()
            return board.with_reward(self.rubric(action, board))

    board = driven(Twice(Sequential(Value())), Move(value=2))
    assert (board.reward, board.metadata["reward_components"]) == (2.0, {"rubric_0": 2.0})


def test_step_metadata_components_belong_to_the_evaluation_that_the_reward_comes_from():
    class LooksFirst(World):
        def step(self, action, timeout_s=None, **kwargs):
            self.rubric(Move(value=9), Board())
            return self.score(action, Board())

    board = driven(LooksFirst(Sequential(Value())), Move(value=2))
    assert (board.reward, board.metadata["reward_components"]) == (2.0, {"rubric_0": 2.0})


def test_step_metadata_ignores_rubrics_that_are_not_the_environments_own():
    class Other(World):
        def step(self, action, timeout_s=None, **kwargs):
            return Board().with_reward(Sequential(Half())(action, Board()))

    board = driven(Other())
    assert (board.reward, board.metadata) == (0.5, {})


def test_step_metadata_an_author_who_scores_nothing_gets_no_metadata():
    class Silent(World):
        def step(self, action, timeout_s=None, **kwargs):
            return Board()

    board = driven(Silent())
    assert (board.reward, board.metadata) == (None, {})


@pytest.mark.parametrize("half", [Half, AsyncHalf])
def test_step_metadata_what_an_author_wrote_into_the_metadata_is_kept(half):
    class Reports(World):
        def step(self, action, timeout_s=None, **kwargs):
            board = Board(metadata={"turn": 1})
            return board.with_reward(self.rubric(action, board))

    metadata = driven(Reports(Sequential(half()))).metadata
    assert unsigned(metadata) == {"turn": 1, "reward_components": {"rubric_0": 0.5}}


# One observation object, shown again and again ------------------------------------------------


class Flaky(Rubric):
    """Fails where the action's value is negative."""

    def forward(self, action, observation):
        if action.value < 0:
            raise OSError("the judge is down")
        return action.value


class AsyncFlaky(Flaky):
    async def forward(self, action, observation):
        return super().forward(action, observation)


class SameByScore(World):
    def __init__(self, rubric):
        super().__init__(rubric)
        self.board = Board()

    def step(self, action, timeout_s=None, **kwargs):
        return self.score(action, self.board)


class SameByReward(SameByScore):
    def step(self, action, timeout_s=None, **kwargs):
        self.board.reward = self.rubric(action, self.board)
        return self.board


@pytest.mark.parametrize("way", [SameByScore, SameByReward])
@pytest.mark.parametrize("flaky", [Flaky, AsyncFlaky])
@pytest.mark.parametrize("guarded", [False, True])
def test_step_metadata_an_observation_that_is_shown_again_keeps_no_old_failure(way, flaky, guarded):
    child = Guarded(flaky(), on_error="zero") if guarded else flaky()
    adapter = EnvAdapter(way(Sequential(child, Half())))
    key = "reward_dealt_with" if guarded else "reward_error"
    failed = adapter.step(Move(value=-1))
    assert "OSError: the judge is down" in failed.metadata[key]
    assert failed.reward == (0.0 if guarded else None)
    board = adapter.step(Move(value=2))
    assert board is failed
    assert board.reward == 0.5
    assert set(unsigned(board.metadata)) == {"reward_components"}
    assert board.metadata["reward_components"]["rubric_1"] == 0.5
    again = adapter.step(Move(value=-1))
    assert again.reward == (0.0 if guarded else None)
    assert "rubric_1" not in again.metadata["reward_components"]


# The end of an episode ------------------------------------------------------------------------


class Length(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        return float(len(trajectory))


class Episode(World):
    """Two steps long."""

    def __init__(self, rubric):
        super().__init__(rubric)
        self.board = Board()

    def reset(self, seed=None, episode_id=None, **kwargs):
        super().reset()
        self.board.done = False
        return self.board

    def step(self, action, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        self.board.done = self.episode.step_count == 2
        return self.score(action, self.board)


class EpisodeByHand(Episode):
    def step(self, action, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        self.board.done = self.episode.step_count == 2
        self.board.reward = self.rubric(action, self.board)
        return self.board


@pytest.mark.parametrize("way", [Episode, EpisodeByHand])
@pytest.mark.parametrize("half", [Half, AsyncHalf])
def test_step_metadata_the_observation_that_ends_an_episode_has_the_rewards_of_its_steps(way, half):
    adapter = EnvAdapter(way(Sequential(half(), Length(gamma=0.5))))
    for _ in range(2):  # the second episode knows nothing of the first
        adapter.reset(None, None)
        first = adapter.step(Move())
        assert (first.reward, "step_rewards" in first.metadata) == (0.0, False)
        last = adapter.step(Move())
        assert (last.reward, last.metadata["step_rewards"]) == (2.0, [1.0, 2.0])


def test_step_metadata_without_a_trajectory_rubric_there_are_no_step_rewards():
    adapter = EnvAdapter(Episode(Half()))
    adapter.reset(None, None)
    adapter.step(Move())
    board = adapter.step(Move())
    assert board.done
    assert "step_rewards" not in board.metadata


@pytest.mark.parametrize("way", [Episode, EpisodeByHand])
@pytest.mark.parametrize("wrong", [[1.0, float("nan")], [1.0, "2"], None, OSError("lost")])
def test_step_metadata_step_rewards_that_cant_be_had_are_reported_and_leave_the_reward(way, wrong):
    class Wrong(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

        def compute_step_rewards(self):
            if isinstance(wrong, Exception):
                raise wrong
            return wrong

    adapter = EnvAdapter(way(Wrong()))
    adapter.reset(None, None)
    adapter.step(Move())
    board = adapter.step(Move())
    assert board.reward == 1.0
    assert board.metadata["step_rewards"] is None
    assert board.metadata["step_rewards_error"]
    assert "reward_error" not in board.metadata


def test_step_metadata_a_rubric_that_failed_at_the_end_is_reported_rather_than_the_step_rewards():
    adapter = EnvAdapter(Episode(Sequential(Flaky(), Length(gamma=0.5))))
    adapter.reset(None, None)
    adapter.step(Move())
    board = adapter.step(Move(value=-1))
    assert board.reward is None
    assert board.metadata["reward_error"] == "rubric 'rubric_0': OSError: the judge is down"


class FragileLength(Length):
    def forward(self, action, observation):
        if action.value < 0:
            raise OSError("the judge is down")
        return super().forward(action, observation)


@pytest.mark.parametrize(
    "tree",
    [
        lambda: Sequential(Gate(Flaky(), threshold=0.0), Length(gamma=0.5)),
        lambda: WeightedSum([Sequential(Flaky(), Length(gamma=0.5))], [1.0]),
        lambda: Guarded(FragileLength(gamma=0.5), timeout=10),
        lambda: FragileLength(gamma=0.5),
    ],
)
def test_step_metadata_step_rewards_error_names_the_step_that_failed(tree):
    class Long(Episode):
        def step(self, action, timeout_s=None, **kwargs):
            self.episode.step_count += 1
            self.board.done = self.episode.step_count == 3
            return self.score(action, self.board)

    async def play():
        app = create_app(lambda: Long(tree()), env_name="long")
        async with GenericEnvClient(transport=ASGITransport(app)) as client:
            await client.reset()
            return [await client.step({"value": value}) for value in (1, -1, 1)]

    results = asyncio.run(play())
    assert [result.reward is None for result in results] == [False, True, False]
    metadata = results[-1].observation["metadata"]
    assert metadata["step_rewards"] is None
    assert "TrajectoryError: the reward of step 1 isn't known" in metadata["step_rewards_error"]


def test_step_metadata_leaves_out_children_that_were_not_dispatched_to():
    class Picks(Rubric):
        def __init__(self):
            super().__init__()
            self.tasks = RubricDict({"a": Half(), "b": Down()})

        def forward(self, action, observation):
            return self.tasks["a"](action, observation)

    assert driven(ByScore(Picks())).metadata["reward_components"] == {"tasks.a": 0.5}
    assert driven(ByReward(Picks())).metadata["reward_components"] == {"tasks.a": 0.5}


class Game(Move):
    name: str = "pong"


class Atari(Environment[Game, Board, State]):
    """One environment for many games, as OpenEnv's RFC 004 writes it."""

    state = State()

    def __init__(self, **games):
        super().__init__()
        self.rubric = RubricDict(games)

    def reset(self):
        self._reset_rubric()
        return Board()

    def step(self, action):
        board = Board(done=action.value == 0)
        board.reward = self.rubric[action.name](action, board)
        return board


class AsyncAtari(Atari):
    async def step_async(self, action):
        board = Board(done=action.value == 0)
        board.reward = await self.rubric[action.name].evaluate(action, board)
        return board


@pytest.mark.parametrize("world", [Atari, AsyncAtari])
def test_step_metadata_the_tree_of_a_rubric_dict_has_the_members_that_were_called(world):
    environment = world(pong=Sequential(Value()), chess=Half())
    board = driven(environment, Game(value=2), keeps_trees=True)
    tree = board.metadata["reward_tree"]
    assert (tree["value"], scores_of(tree)) == (2.0, {"pong": 2.0, "pong.rubric_0": 2.0})
    assert [each["status"] for each in tree["children"]] == ["scored", "skipped"]


@pytest.mark.parametrize("world", [Atari, AsyncAtari])
def test_step_metadata_a_rubric_dict_of_an_environment_is_dispatched_to_by_hand(take_step, world):
    board = take_step(world(pong=Sequential(Value()), chess=Half()), Game(value=2))
    assert (board.reward, type(board.reward)) == (2.0, float)
    assert board.metadata["reward_components"] == {"pong": 2.0, "pong.rubric_0": 2.0}
    assert len(board.metadata["reward_fingerprint"]) == 16
    assert "step_rewards" not in board.metadata


@pytest.mark.parametrize("world", [Atari, AsyncAtari])
def test_step_metadata_a_rubric_dict_of_an_environment_has_the_step_rewards_of_its_members(world):
    def play(adapter, *actions):
        async def main():
            adapter.reset()
            return [await taken(adapter.step(each)) for each in actions][-1]

        async def taken(step):
            return await step if adapter.step_is_async else step

        return asyncio.run(main()).metadata["step_rewards"]

    adapter = EnvAdapter(world(pong=Length(gamma=0.5), chess=Half(), go=Length(gamma=1.0)))
    move, end = Game(), Game(value=0)
    for _ in range(2):  # an episode leaves nothing for the next one
        assert play(adapter, move, move, end) == [0.75, 1.5, 3.0]
    assert play(adapter, move, Game(name="chess"), end) == [1.0, 0.5, 2.0]
    assert play(adapter, Game(name="chess"), Game(name="go", value=0)) == [0.5, 1.0]


@pytest.mark.parametrize("world", [Atari, AsyncAtari])
def test_step_metadata_a_failed_member_of_a_rubric_dict_is_reported_with_its_path(take_step, world):
    board = take_step(world(pong=Sequential(Half(), Down())), Game())
    assert (board.reward, board.metadata["reward_failed"]) == (None, "pong.rubric_1")
    assert board.metadata["reward_components"] == {"pong.rubric_0": 0.5}


def test_step_metadata_several_members_of_a_rubric_dict_are_called_at_one_step():
    class Sums(Atari):
        def step(self, action):
            board = Board(done=True)
            early = self.rubric["pong"](action, Board())
            composed, _ = self.rubric["chess"].compute(action, board)
            board.reward = early + composed + self.rubric["go"](action, board)
            return board

    chess = RubricComposer({"half": Half()}, [1.0], normalize=False)
    board = driven(Sums(pong=Value(), chess=chess, go=Half()), Game())
    assert board.reward == 2.0
    assert board.metadata["reward_components"] == {
        "pong": 1.0, "chess": 0.5, "chess.half": 0.5, "go": 0.5,
    }  # fmt: skip
    chess = RubricComposer({"length": Length()}, [1.0], normalize=False)
    board = driven(Sums(pong=Value(), chess=chess, go=Length()), Game())
    assert board.reward == 3.0
    assert board.metadata["step_rewards"] is None
    several = "at step 0 several rubrics of the RubricDict were called: ['pong', 'chess', 'go']"
    assert several in board.metadata["step_rewards_error"]


def test_observation_subclass_with_a_reward_that_cannot_be_none_is_rejected():
    with pytest.raises(
        EnvDefinitionError, match=r"`reward` of Numbered must accept None, .* got <class 'float'>"
    ):

        class Numbered(Observation):
            reward: float = 0.0


def test_step_metadata_one_that_declares_a_reward_that_may_be_none_is_fine():
    class Numbered(Observation):
        reward: float | None = 0.5

    assert Numbered().reward == 0.5


def test_step_metadata_an_observation_made_anew_after_scoring_reports_what_the_scoring_reported():
    """The author copies the reward, and not the metadata."""

    class Anew(World):
        def step(self, action, timeout_s=None, **kwargs):
            scored = self.score(action, Observation(done=True))
            return Observation(reward=scored.reward, done=True, metadata={"mine": 1})

    failed = driven(Anew(Down()))
    assert failed.reward is None
    assert failed.metadata["reward_error"] == "OSError: the judge is down"
    assert failed.metadata["mine"] == 1
    tree = WeightedSum([Half(), Half()], [1.0, 1.0])
    scored = driven(Anew(tree))
    assert scored.metadata["reward_components"] == {"rubric_0": 0.5, "rubric_1": 0.5}


@pytest.mark.parametrize("way", ["directly", "with_reward", "apply"])
def test_step_metadata_sync_leaves_of_an_async_tree_go_to_threads_however_the_step_is_written(way):
    """Two environments meet in a leaf: neither waits in the other's way."""
    meeting = threading.Barrier(2, timeout=5)

    class Meets(Rubric):
        def forward(self, action, observation):
            meeting.wait()
            return 1.0

    class Judge(Rubric):
        async def forward(self, action, observation):
            return 1.0

    class Written(World):
        def step(self, action, timeout_s=None, **kwargs):
            observation = Observation()
            if way == "directly":
                observation.reward = self.rubric(action, observation)
            elif way == "with_reward":
                return observation.with_reward(self.rubric(action, observation))
            else:
                observation.reward = self._apply_rubric(action, observation)
            return observation

    adapters = [EnvAdapter(Written(WeightedSum([Judge(), Meets()], [0.5, 0.5]))) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        boards = list(threads.map(lambda adapter: adapter.step(Move()), adapters))
    assert [board.reward for board in boards] == [1.0, 1.0]


@pytest.mark.parametrize("way", ["score", "apply", "directly"])
def test_step_metadata_an_async_step_that_would_have_the_event_loop_wait_is_refused(way):
    """One judge would hold up every session of the server."""

    class Blocks(World):
        async def step_async(self, action, timeout_s=None, **kwargs):
            observation = Observation()
            if way == "score":
                return self.score(action, observation)
            if way == "apply":
                observation.reward = self._apply_rubric(action, observation)
            else:
                observation.reward = self.rubric(action, observation)
            return observation

    with pytest.raises(AsyncRubricError, match=r"await self\.score_async"):
        driven(Blocks(AsyncHalf()))
    assert driven(Blocks(Half())).reward == 0.5


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"reward": float("nan")}, "the reward of .* got nan"),
        ({"reward": "much"}, "the reward of .* got 'much'"),
        ({"metadata": None}, "metadata is not a dict"),
        ({"done": "yes"}, "done is not a bool"),
    ],
)
def test_step_metadata_what_was_set_around_the_checks_of_an_observation_is_refused(
    changed, problem
):
    class Around(World):
        def step(self, action, timeout_s=None, **kwargs):
            return self.score(action, Observation()).model_copy(update=changed)

    with pytest.raises(InvalidObservationError, match=problem):
        driven(Around(Half()))


def test_step_metadata_a_trajectory_rubric_records_for_one_environment_at_a_time():
    class Shared(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

        def compute_step_rewards(self):
            return [1.0] * len(self.trajectory)

    shared = Shared()
    first = EnvAdapter(Episode(shared))
    with pytest.raises(EnvDefinitionError, match="would mix their episodes"):
        EnvAdapter(Episode(WeightedSum([shared], [1.0])))
    first.close()
    EnvAdapter(Episode(shared)).close()
    stateless = Half()  # keeps nothing of an episode
    EnvAdapter(Episode(stateless))
    EnvAdapter(Episode(stateless))


@pytest.mark.parametrize("way", ["without the rubric", "anew", "directly"])
def test_step_metadata_an_environment_inside_of_another_keeps_its_components_to_itself(way):
    class Outer(World):
        def step(self, action, timeout_s=None, **kwargs):
            inner = ByScore(WeightedSum([Half(), Half()], [1.0, 1.0]))
            if way == "without the rubric":
                inner.step(action)
                return Observation(reward=0.1)
            observation = Observation()
            if way == "directly":
                observation.reward = self.rubric(action, observation)
                inner.step(action)
                return observation
            reward = self.score(action, observation).reward
            inner.step(action)
            return Observation(reward=reward)

    observation = driven(Outer(WeightedSum([Half()], [0.2])))
    assert observation.reward == 0.1
    recorded = {} if way == "without the rubric" else {"rubric_0": 0.5}
    assert observation.metadata.get("reward_components", {}) == recorded


def test_step_metadata_a_failed_scoring_leaves_no_reward_that_the_author_sampled():
    class Insists(World):
        def step(self, action, timeout_s=None, **kwargs):
            self.score(action, Observation())
            return Observation(reward=9.0)

    observation = driven(Insists(Down()))
    assert observation.reward is None
    assert observation.metadata["reward_error"] == "OSError: the judge is down"


def test_step_metadata_an_observation_that_is_shown_again_reports_the_step_that_it_is_shown_for():
    class Scores(Rubric):
        def forward(self, action, observation):
            if action.value == 1:
                raise OSError("the judge is down")
            return action.value / 4

    class Shows(World):
        shown = Observation()

        def step(self, action, timeout_s=None, **kwargs):
            self.shown.reward = self.score(action, Observation()).reward
            return self.shown

    adapter = EnvAdapter(Shows(WeightedSum([Scores()], [1.0])))
    recorded = []
    for value in (2, 1, 3):
        metadata = adapter.step(Move(value=value)).metadata
        recorded.append((dict(metadata["reward_components"]), "reward_error" in metadata))
    assert recorded == [({"rubric_0": 0.5}, False), ({}, True), ({"rubric_0": 0.75}, False)]


def test_step_metadata_trajectory_rubrics_that_are_equal_are_not_the_same():
    @dataclass
    class Equal(TrajectoryRubric):
        weight: float = 1.0

        def __post_init__(self):
            super().__init__()

        def score_trajectory(self, trajectory):
            return self.weight

        def compute_step_rewards(self):
            return [self.weight] * len(self.trajectory)

    first, second = EnvAdapter(Episode(Equal())), EnvAdapter(Episode(Equal()))
    first.close()
    second.close()


# What failed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [ByScore, ByReward])
def test_step_metadata_the_rubric_that_failed_is_named(way):
    board = driven(way(WeightedSum([Half(), Down()], [1, 1])))
    assert (board.reward, board.metadata["reward_failed"]) == (None, "rubric_1")
    assert driven(way(Down())).metadata["reward_failed"] == ""


# The author's code that takes part in setting a reward ------------------------------------------


class Tagged(Board):
    tag: str = "a"

    @field_validator("tag")
    @classmethod
    def is_lower(cls, tag):
        return tag.lower()


class Narrow(Board):
    reward: float | None = Field(default=None, ge=0)


class Rounded(Board):
    @field_validator("reward")
    @classmethod
    def rounds(cls, reward):
        return None if reward is None else round(reward, 1)


class Halved(Board):
    @field_validator("reward", mode="before")
    @classmethod
    def _number(cls, reward):
        return None if reward is None else reward / 2


class AnyField(Board):
    @field_validator("*")
    @classmethod
    def shorten(cls, value):
        return round(value, 2) if isinstance(value, float) else value


class Total(Board):
    total: float | None = None

    @model_validator(mode="after")
    def adds(self):
        self.__dict__["total"] = self.reward
        return self


class Logged(Board):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "reward":
            self.metadata["set"] = value


class Frozen(Board):
    model_config = ConfigDict(frozen=True)


class BelowRounded(Rounded):
    pass


def outcome(assign):
    try:
        board = assign()
    except ValidationError as error:
        return [each["type"] for each in error.errors()]
    fields = board.model_dump()
    fields["metadata"] = fields["metadata"].get("set")
    return fields, board.model_fields_set - {"metadata"}


KINDS = [Board, Tagged, Narrow, Rounded, Halved, AnyField, Total, Logged, Frozen, BelowRounded]


@given(kind=st.sampled_from(KINDS), score=st.floats(allow_nan=False, allow_infinity=False))
def test_score_sets_the_reward_as_an_assignment_does_whatever_the_observation_validates(
    kind, score
):
    def assigned():
        board = kind()
        board.reward = score
        return board

    def scored():
        return world.score(Move(value=score), kind())

    world = World()
    assert outcome(scored) == outcome(assigned)
