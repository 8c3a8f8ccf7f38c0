"""Reset arguments of pools: those that no environment accepts are refused, on each backend."""

import pytest

from guerdon import Environment, EnvPool, State
from guerdon.errors import InvalidArgumentError
from tests.envs.worlds import Board, Half, Move

edge = pytest.mark.edge


class Level(Environment[Move, Board, State]):
    state = State()

    def __init__(self):
        super().__init__(rubric=Half())

    def reset(self, seed=None, level=1):
        return Board(metadata={"level": level})

    def step(self, action):
        return self.score(action, Board())


@pytest.fixture(params=["threads", *(pytest.param(name, marks=edge) for name in ("processes",))])
def pool(request):
    with EnvPool(Level, n=2, backend=request.param).sync() as pool:
        yield pool


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"sed": 1}, "takes no 'sed'; did you mean 'seed'?"),
        ({"levle": 2}, "takes no 'levle'; did you mean 'level'?"),
        ({"options": [{"level": 2}, {"Level": 2}]}, "takes no 'Level'; did you mean 'level'?"),
        ({"x": 2}, "takes no 'x'; known: 'episode_id', 'level', 'seed'"),
        ({"seed": 1}, "pass `seeds`"),
    ],
)
def test_env_pool_refuses_a_reset_argument_by_name(pool, arguments, problem):
    with pytest.raises(InvalidArgumentError) as caught:
        pool.reset_batch(**arguments)
    assert problem in str(caught.value)
    first = pool.reset_batch(seeds=0, level=3, episode_id="e")
    assert [each.metadata["level"] for each in first] == [3, 3]


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ({"move": 1}, "not a valid Move: move: Extra inputs are not permitted"),
        (Level.action_type(), None),
        (
            type("Other", (Move.__base__,), {})(),
            "must be a Move or a dict of its fields, got Other",
        ),
        (type("Move", (Move.__base__,), {})(), None),  # such as that of a module loaded again
    ],
)
def test_env_pool_refuses_an_action_of_another_class_by_name(pool, action, problem):
    pool.reset_batch()
    one, other = pool.step_batch([action, Move()])
    assert other.reward == 0.5
    if problem is None:
        assert one.reward == 0.5
    else:
        assert (one.done, one.reward) == (False, None)
        assert problem in one.metadata["error"]


@pytest.mark.parametrize("action", ["hi", ["hi"], 3, Board(), Move])
def test_env_pool_raises_for_what_is_no_action(pool, action):
    pool.reset_batch()
    with pytest.raises(InvalidArgumentError, match=r"`actions\[0\]` must be an Action, a dict"):
        pool.step_batch([action, Move()])
