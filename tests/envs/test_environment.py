"""Environment: what an author writes, and the errors for what is missing."""

import asyncio
import re
import threading
from typing import Generic

import pytest

from examples.tau_chat.scripted_model import ScriptedModel
from guerdon import (
    Action,
    Environment,
    EnvPool,
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    LLMJudge,
    MCPClient,
    Observation,
    Rubric,
    Sequential,
    State,
    WeightedSum,
    as_rubric,
)
from guerdon._background import no_waiting, run
from guerdon.envs.environment import ActT, ObsT, StateT
from guerdon.errors import (
    AsyncRubricError,
    EnvDefinitionError,
    InvalidActionError,
    InvalidArgumentError,
)
from guerdon.services import OpenAIService
from tests.envs.worlds import (
    SOON,
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


class Level(State):
    level: int = 0


class Length(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        return float(len(trajectory))


# The rubric is required -----------------------------------------------------------------------


def test_environment_an_environment_without_a_rubric_cant_be_made():
    class Forgot(World):
        def __init__(self):
            super().__init__()
            self.rubric = None

    class Never(World):
        def __init__(self):
            Environment.__init__(self)

    for kind in (Forgot, Never):
        with pytest.raises(EnvDefinitionError, match=rf"{kind.__name__} has no rubric; set one"):
            kind()


@pytest.mark.parametrize("thing", [0.5, "good", Value, lambda action, observation: 1.0, [Value()]])
def test_environment_a_rubric_that_is_invalid_is_refused(thing):
    with pytest.raises(EnvDefinitionError, match=r"World has .* as its rubric; set one"):
        World(thing)


def test_environment_a_forgotten_super_init_is_reported_as_a_missing_rubric():
    class Forgot(World):
        def __init__(self):
            self.episode = State()

    with pytest.raises(EnvDefinitionError, match="Forgot has no rubric"):
        Forgot()


def test_environment_accepts_a_rubric_that_is_set_as_an_attribute():
    class ByHand(World):
        def __init__(self):
            self.rubric = Half()
            self.episode = State()

    class OfTheClass(World):
        rubric = Half()

        def __init__(self):
            self.episode = State()

    for kind in (ByHand, OfTheClass):
        assert kind().step(Move()).reward == 0.5


# Methods that an author must and mustn't write ------------------------------------------------


@pytest.mark.parametrize("name", ["reset", "step"])
def test_environment_reports_a_missing_method_when_it_is_created(name):
    methods = {
        "reset": lambda self, seed=None: Observation(),
        "step": lambda self, action: Observation(),
        "state": State(),
    }
    del methods[name]
    kind = type("Lacks", (Environment,), methods)
    with pytest.raises(EnvDefinitionError, match=f"Lacks must define {name} or {name}_async"):
        kind(rubric=Half())


def test_environment_a_missing_state_is_reported_when_the_environment_is_made():
    class Lacks(Environment):
        def reset(self, seed=None):
            return Observation()

        def step(self, action):
            return Observation()

    with pytest.raises(TypeError, match=r"Lacks.*state"):
        Lacks(rubric=Half())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("step", "call it step_async"),
        ("reset", "call it reset_async"),
        ("close", "close is a plain function"),
    ],
)
def test_environment_an_async_def_under_a_sync_name_is_refused_when_the_class_is_made(
    name, problem
):
    async def method(self, *args, **kwargs):
        return Observation()

    with pytest.raises(EnvDefinitionError, match=rf"Wrong\.{name} is async; {problem}"):
        type("Wrong", (World,), {name: method})


# Async twins ----------------------------------------------------------------------------------


class OnlyAsync(Environment[Move, Board, State]):
    """Neither reset nor step: only their async twins."""

    state = State()

    def __init__(self, rubric=None):
        super().__init__(rubric=rubric or AsyncHalf())

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        await asyncio.sleep(0)
        await self._reset_rubric_async()
        return Board(metadata={"seed": seed, "episode_id": episode_id, **kwargs})

    async def step_async(self, action, timeout_s=None, **kwargs):
        await asyncio.sleep(0)
        board = Board(value=action.value, metadata={"timeout_s": timeout_s, **kwargs})
        return await self.score_async(action, board)


def play_sync(environment):
    first = environment.reset(seed=3, episode_id="e", task=1)
    return first.metadata, environment.step(Move(value=2), timeout_s=7, hint=True)


def test_environment_where_only_the_async_twins_are_written_the_sync_ones_work():
    metadata, board = play_sync(OnlyAsync())
    assert metadata == {"seed": 3, "episode_id": "e", "task": 1}
    assert (board.reward, board.value) == (0.5, 2.0)
    assert (board.metadata["timeout_s"], board.metadata["hint"]) == (7, True)


def test_environment_they_work_inside_of_a_running_event_loop_too():
    async def main():
        return play_sync(OnlyAsync())[1].reward

    assert asyncio.run(main()) == 0.5


def test_environment_on_the_background_loop_itself_they_say_to_use_the_async_twin():
    async def main():
        return OnlyAsync().step(Move())

    with pytest.raises(AsyncRubricError, match=r"step_async"):
        run(main())


def test_environment_where_only_the_sync_ones_are_written_the_async_twins_run_off_the_event_loop():
    where = []

    class Here(World):
        def reset(self, seed=None, **kwargs):
            where.append(threading.current_thread())
            return super().reset(seed, **kwargs)

        def step(self, action, timeout_s=None, **kwargs):
            where.append(threading.current_thread())
            return super().step(action)

    async def main():
        environment = Here()
        first = await environment.reset_async(seed=3, task=1)
        return first.metadata, (await environment.step_async(Move(value=2))).reward

    assert asyncio.run(main()) == ({"seed": 3, "task": 1}, 2.0)
    assert len(where) == 2
    assert threading.current_thread() not in where


# Scoring --------------------------------------------------------------------------------------

TREES = [
    pytest.param(lambda: WeightedSum([Value(), Half()], [1, 1]), id="sync"),
    pytest.param(lambda: WeightedSum([Value(), AsyncHalf()], [1, 1]), id="async"),
]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("how", ["sync", "in a loop", "async"])
def test_environment_score_writes_reward_and_components_of_any_tree(tree, how):
    environment = World(tree())
    board = Board()

    async def main():
        if how == "async":
            return await environment.score_async(Move(value=2), board)
        return environment.score(Move(value=2), board)

    scored = environment.score(Move(value=2), board) if how == "sync" else asyncio.run(main())
    assert scored is board
    assert board.reward == 2.5
    assert unsigned(board.metadata) == {"reward_components": {"rubric_0": 2.0, "rubric_1": 0.5}}


@pytest.mark.parametrize("down", [Down, AsyncDown])
def test_environment_score_reports_a_failed_rubric_as_no_reward_and_a_reason(down):
    environment = World(Sequential(Half(), WeightedSum([Half(), down()], [1, 1])))
    for board in (
        environment.score(Move(), Board()),
        asyncio.run(environment.score_async(Move(), Board())),
    ):
        assert board.reward is None
        assert board.metadata["reward_error"] == (
            "rubric 'rubric_1.rubric_1': OSError: the judge is down"
        )
        assert board.metadata["reward_components"]["rubric_0"] == 0.5
        assert "rubric_1.rubric_1" not in board.metadata["reward_components"]


@pytest.mark.parametrize("tree", TREES)
def test_environment_apply_rubric_returns_the_number(tree):
    environment = World(tree())
    assert environment._apply_rubric(Move(value=2), Board()) == 2.5
    assert asyncio.run(environment._apply_rubric_async(Move(value=2), Board())) == 2.5


@pytest.mark.parametrize("down", [Down, AsyncDown])
def test_environment_apply_rubric_raises_what_the_rubric_raises(down):
    environment = World(down())
    with pytest.raises(OSError, match="the judge is down"):
        environment._apply_rubric(Move(), Board())
    with pytest.raises(OSError, match="the judge is down"):
        asyncio.run(environment._apply_rubric_async(Move(), Board()))


def test_environment_apply_rubric_works_inside_of_a_running_event_loop():
    async def main():
        return World(AsyncHalf())._apply_rubric(Move(), Board())

    assert asyncio.run(main()) == 0.5


class Session(Rubric):
    """Has a session with a judge, which it renews in an async reset, as in OpenEnv."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.loops = []

    def forward(self, action, observation):
        self.seen.append(action.value)
        return 1.0

    async def reset_async(self):
        await asyncio.sleep(0)
        self.loops.append(asyncio.get_running_loop())
        self.seen = []


def test_environment_reset_rubric_async_awaits_the_reset_async_of_every_rubric():
    deep = Session()
    environment = OnlyAsync(Sequential(WeightedSum([deep], [1.0])))

    async def main():
        await environment.reset_async()
        await environment.step_async(Move())
        assert len(deep.seen) == 1
        await environment.reset_async()
        return asyncio.get_running_loop()

    assert asyncio.run(main()) is deep.loops[-1]
    assert (len(deep.loops), deep.seen) == (2, [])


def test_environment_reset_rubric_waits_for_the_reset_async_of_a_rubric():
    deep = Session()
    environment = World(Gate(deep))
    environment.reset()
    environment.step(Move())
    assert len(deep.seen) == 1
    environment.reset()
    assert deep.seen == []


def test_environment_reset_rubric_in_async_code_names_its_async_twin():
    class Wrong(OnlyAsync):
        async def reset_async(self, seed=None, episode_id=None, **kwargs):
            self._reset_rubric()

    async def main():
        environment = Wrong(Session())
        with no_waiting("Wrong.reset_async"):
            await environment.reset_async()

    with pytest.raises(AsyncRubricError, match=r"await self\._reset_rubric_async\(\)"):
        asyncio.run(main())


def test_environment_reset_rubric_async_prefers_the_async_reset_of_a_rubric_that_has_both():
    class Both(Half):
        def __init__(self):
            super().__init__()
            self.resets = []

        def reset(self):
            self.resets.append("sync")

        async def reset_async(self):
            self.resets.append("async")

    rubric = Both()
    asyncio.run(OnlyAsync(rubric).reset_async())
    rubric.reset()
    assert rubric.resets == ["async", "sync"]


@pytest.mark.parametrize("twin", ["_reset_rubric", "_reset_rubric_async"])
def test_environment_reset_rubric_has_the_rubric_forget_the_episode(twin):
    environment = World(Sequential(Length(gamma=0.5)))
    environment.score(Move(), Board())
    forgotten = getattr(environment, twin)()
    if twin.endswith("_async"):
        asyncio.run(forgotten)
    board = environment.score(Move(), Board(done=True))
    assert (board.reward, board.metadata["step_rewards"]) == (1.0, [1.0])


# The rest -------------------------------------------------------------------------------------


def test_environment_a_transform_is_applied_where_the_author_is_reported():
    class Transformed(World):
        def __init__(self, transform=None):
            Environment.__init__(self, Half(), transform=transform)

        def step(self, action, timeout_s=None, **kwargs):
            return self._apply_transform(self.score(action, Board()))

    other = Board(value=9)
    assert Transformed(lambda board: other).step(Move()) is other
    assert Transformed().step(Move()).reward == 0.5


def test_environment_the_types_in_the_brackets_are_attributes_of_the_class():
    assert (World.action_type, World.observation_type, World.state_type) == (Move, Board, State)

    class Same(World):
        pass

    class Narrower(Environment[Move, Observation, Level]):
        pass

    class Plain(Environment):
        pass

    assert (Same.action_type, Same.state_type) == (Move, State)
    assert (Narrower.observation_type, Narrower.state_type) == (Observation, Level)
    assert (Plain.action_type, Plain.observation_type, Plain.state_type) == (
        Action,
        Observation,
        State,
    )


def test_environment_types_that_a_generic_parent_leaves_open_are_filled_in_by_its_child():
    class Open(Environment[ActT, ObsT, StateT], Generic[ActT, ObsT, StateT]):
        pass

    class AllGiven(Open[Move, Board, Level]):
        pass

    class OnlyObservation(Environment[Move, ObsT, Level], Generic[ObsT]):
        pass

    class Given(OnlyObservation[Board]):
        pass

    assert (AllGiven.action_type, AllGiven.observation_type) == (Move, Board)
    assert Given.action_type is Move
    assert Given.observation_type is Board
    assert Given.state_type is Level


class ByAnnotation(Environment):
    """As OpenEnv's RFC 004 writes an environment: without type parameters."""

    def __init__(self):
        self.rubric = Value()

    def reset(self):
        return Board()

    def step(self, action: Move) -> Board:
        board = Board(value=action.value)
        board.reward = self.rubric(action, board)
        return board

    @property
    def state(self):
        return State()


def test_environment_types_are_read_from_the_annotations_of_step():
    assert (ByAnnotation.action_type, ByAnnotation.observation_type) == (Move, Board)
    with EnvPool(ByAnnotation, 1).sync() as pool:
        pool.reset_batch()
        assert pool.step_batch([{"value": 0.25}])[0].reward == 0.25


def test_environment_types_that_are_declared_stay_whatever_step_is_annotated_with():
    class Declared(Environment[Move, Board, State]):
        def step(self, action: Action) -> Observation: ...

    class WithoutReturn(ByAnnotation):
        def step(self, action: Action): ...

    class OnlyAsyncStep(Environment):
        async def step_async(self, move: Move): ...

    assert (Declared.action_type, Declared.observation_type) == (Move, Board)
    assert (WithoutReturn.action_type, WithoutReturn.observation_type) == (Move, Board)
    assert (OnlyAsyncStep.action_type, OnlyAsyncStep.observation_type) == (Move, Observation)


@pytest.mark.parametrize("annotation", ["np.ndarray", "pytest.Missing", "not Python"])
def test_environment_types_are_read_whatever_else_step_is_annotated_with(annotation):
    def step(self, action: Move, *, reward=None): ...

    step.__annotations__ |= {"return": annotation, "reward": annotation}
    made = type("CodeEnvironment", (ByAnnotation,), {"step": step})
    undeclared = type("CodeEnvironment", (Environment,), {"step": step})
    assert (made.action_type, made.observation_type) == (Move, Board)
    assert (undeclared.action_type, undeclared.observation_type) == (Move, Observation)


@pytest.mark.parametrize("annotation", [None, "Later", dict, Move | Action])
def test_environment_action_type_that_is_not_declared_is_refused_when_it_is_created(annotation):
    def step(self, action): ...

    if annotation is not None:
        step.__annotations__["action"] = annotation
    members = {name: vars(ByAnnotation)[name] for name in ("__init__", "reset", "state")}
    undeclared = type("CodeEnvironment", (Environment,), {**members, "step": step})
    with pytest.raises(EnvDefinitionError, match=r"CodeEnvironment .* type of its actions: annota"):
        undeclared()


def test_environment_metadata_are_the_name_and_the_first_line_of_the_docstring():
    class Bare(World):
        pass

    metadata = World().get_metadata()
    assert metadata.name == "World"
    assert metadata.description == (
        "The least that an environment can be; its steps are scored by `score`."
    )
    assert Bare().get_metadata().description == "The environment Bare."


def test_environment_an_environment_is_closed_by_with_also_where_its_body_raises():
    closed = []

    class Closes(World):
        def close(self):
            closed.append(True)

    with Closes():
        assert closed == []
    with pytest.raises(OSError, match="mine"), Closes():
        raise OSError("mine")
    assert closed == [True, True]


def test_environment_threads_never_see_the_numbers_of_other_instances():
    barrier = threading.Barrier(2, timeout=SOON)

    class Met(Value):
        def forward(self, action, observation):
            barrier.wait()  # both are in the middle of their evaluation
            return super().forward(action, observation)

    boards = {}

    def play(value, ways):
        environment = World(WeightedSum([Met(), Half()], [1, 1]))
        boards[value] = [
            environment.step(Move(value=value)).model_dump(exclude={"value"}) for _ in range(ways)
        ]

    threads = [threading.Thread(target=play, args=(value, 20)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    for value in (1.0, 2.0):
        assert [board["reward"] for board in boards[value]] == [value + 0.5] * 20
        assert all(
            board["metadata"]["reward_components"] == {"rubric_0": value, "rubric_1": 0.5}
            for board in boards[value]
        )


class CodeAction(Action):
    code: str


class CodeEnvironment(Environment):
    """As in the RFC: its rubric names a service, and the environment has it."""

    def __init__(self, endpoint):
        super().__init__(rubric=LLMJudge("How is the style? {action.code}", "style_judge"))
        model = OpenAIService(endpoint=endpoint, model="m")
        self.mcp = MCPClient({"style_judge": model})

    def reset(self, seed=None):
        self._reset_rubric()
        return Observation()

    def step(self, action: CodeAction) -> Observation:
        return self.score(action, Observation(done=True))

    state = State()


def test_environment_its_judge_uses_its_services():
    with ScriptedModel(["Score: 0.75"]) as model:
        environment = CodeEnvironment(model.endpoint)
        environment.reset()
        assert environment.step(CodeAction(code="x = 1")).reward == 0.75
        environment.mcp.close()


def test_environment_refuses_a_judge_whose_service_it_lacks():
    class Misspelled(CodeEnvironment):
        def __init__(self):
            super().__init__("http://localhost:8000")
            self.rubric = LLMJudge("{action.code}", "stile_judge")

    with pytest.raises(InvalidArgumentError, match="no service 'stile_judge'; did you mean 'style"):
        Misspelled()


# Annotations that are texts, and actions of another class ----------------------------------------

FUTURE = """
from __future__ import annotations
from guerdon import Action, Environment, Observation, State, as_rubric

class Base(Environment):
    state = State()
    def __init__(self):
        super().__init__(rubric=as_rubric(lambda action, observation: 1.0))
    def reset(self, seed=None):
        return Observation()

def local():
    class Move(Action):
        cell: int = 0
    def inner():
        class Game(Base):
            def step(self, action: Move) -> Observation:
                return self.score(action, Observation())
        return Game
    return inner()

class Early(Base):
    def step(self, action: Late) -> Observation:
        return self.score(action, Observation())

class Late(Action):
    cell: int = 0

class Unknown(Base):
    def step(self, action: Nowhere) -> Observation:
        return self.score(action, Observation())

class Plain(Base):
    def step(self, action: dict) -> Observation:
        return self.score(action, Observation())

class Several(Base):
    def step(self, action: Late | Observation) -> Observation:
        return self.score(action, Observation())
"""


@pytest.fixture(scope="module")
def future():
    names = {"__name__": "future"}
    exec(compile(FUTURE, "<future>", "exec", dont_inherit=True), names)
    return names


def test_environment_resolves_annotations_of_classes_in_functions_and_of_later_ones(future):
    assert future["local"]()().step({"cell": 3}).reward == 1.0
    assert future["Early"]().step({"cell": 3}).reward == 1.0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "Unknown",
            "in the annotation, 'Nowhere' can't be resolved (name 'Nowhere' is not defined)",
        ),
        ("Plain", "in the annotation, <class 'dict'> is no class derived from Action"),
        ("Several", "Late | "),
    ],
)
def test_environment_names_the_annotation_that_is_no_action(future, name, problem):
    with pytest.raises(EnvDefinitionError, match=re.escape(problem)):
        future[name]()


class Pick(Action):
    cell: int = 0


class PickTwice(Pick):
    again: int = 0


class Say(Action):
    text: str = ""


class Picking(Environment[Pick, Observation, State]):
    state = State()

    def __init__(self):
        super().__init__(rubric=as_rubric(lambda action, observation: float(action.cell)))

    def reset(self, seed=None):
        return Observation()

    def step(self, action):
        return self.score(action, Observation())


class Named(Picking):
    """Its parent's step gets what it makes of another action."""

    action_type = Say

    def step(self, move):
        return super().step(Pick(cell=len(move.text)))


@pytest.mark.parametrize(
    "action", [Pick(cell=3), PickTwice(cell=3), {"cell": 3}, type("Pick", (Pick,), {})(cell=3)]
)
def test_environment_step_takes_an_action_or_its_fields(action):
    assert Picking().step(action).reward == 3.0


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (Say(text="hi"), "the action must be a Pick or a dict of its fields, got Say: Say("),
        ("hi", "must be a Pick or a dict of its fields, got str: 'hi'"),
        (None, "must be a Pick or a dict of its fields, got NoneType"),
        ({"text": "hi"}, "not a valid Pick: text: Extra inputs are not permitted"),
    ],
)
def test_environment_step_refuses_another_action_by_name(action, problem):
    with pytest.raises(InvalidActionError, match=re.escape(problem)):
        Picking().step(action)


def test_environment_step_may_pass_another_action_to_its_parents():
    assert Named().step(Say(text="abc")).reward == 3.0
    assert Named().step(move=Say(text="ab")).reward == 2.0
