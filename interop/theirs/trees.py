"""Our rubrics in their environments, their rubrics in our trees: ``-m interop.theirs.trees``.

It runs in the interpreter with ``openenv``, with guerdon's source on its path.
"""

from __future__ import annotations

import asyncio
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State
from openenv.core.rubrics import (
    ExponentialDiscountingTrajectoryRubric as TheirDiscounting,
)
from openenv.core.rubrics import Rubric as TheirRubric
from openenv.core.rubrics import Sequential as TheirSequential
from openenv.core.rubrics import WeightedSum as TheirWeightedSum

import guerdon
from guerdon import Gate, Sequential, WeightedSum
from interop.checks import check, main, raises, same, true


class EchoAction(Action):
    """A text."""

    message: str


class Echoed(Observation):
    """The repeated text."""

    text: str = ""


class Polite(guerdon.Rubric):
    """One of our rubrics: scores whether the text contains "please"."""

    def forward(self, action: Any, observation: Any) -> float:
        """Return 1 if it does."""
        return float("please" in action.message)


class Async(guerdon.Rubric):
    """One of our rubrics with an async `forward`."""

    async def forward(self, action: Any, observation: Any) -> float:
        """Return 0.5."""
        await asyncio.sleep(0)
        return 0.5


class TheirBrief(TheirRubric):
    """One of their rubrics: scores brevity."""

    def __init__(self) -> None:
        super().__init__()
        self.resets = 0

    def forward(self, action: Any, observation: Any) -> float:
        """Return 1 for an empty text, 0 for 16 characters or more."""
        return 1 - min(len(observation.text), 16) / 16

    def reset(self) -> None:
        """Count the resets."""
        self.resets += 1


class TheirAsync(TheirRubric):
    """One of their rubrics with an async `forward`."""

    async def forward(self, action: Any, observation: Any) -> float:
        """Return 0.25."""
        await asyncio.sleep(0)
        return 0.25


class TheirWon(TheirDiscounting):
    """One of their rubrics that scores the whole episode."""

    def score_trajectory(self, trajectory: Any) -> float:
        """Return 1 if the last text is "won"."""
        return float(trajectory[-1][1].text == "won")


class TheirEcho(Environment[EchoAction, Echoed, State]):
    """Their environment, written like in their guide."""

    def __init__(self, rubric: Any) -> None:
        super().__init__(rubric=rubric)
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Echoed:
        """Begin an episode."""
        self._reset_rubric()
        self._state = State(episode_id=episode_id)
        return Echoed()

    def step(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        """Return the text with its score."""
        observation = Echoed(text=action.message, done=action.message in ("won", "lost"))
        observation.reward = self._apply_rubric(action, observation)
        return observation

    async def step_async(
        self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any
    ) -> Echoed:
        """Return the text with its score; await the rubric."""
        observation = Echoed(text=action.message, done=action.message in ("won", "lost"))
        observation.reward = await self._apply_rubric_async(action, observation)
        return observation

    @property
    def state(self) -> State:
        """The state of the episode."""
        return self._state


HI = EchoAction(message="hi please")
RUDE = EchoAction(message="hi")


def _step(rubric: Any, action: EchoAction = HI) -> tuple[Any, Echoed]:
    """Return our tree's score of one of their steps, and the observation."""
    observation = Echoed(text=action.message, done=action.message in ("won", "lost"))
    return rubric.score(action, observation), observation


@check("our tree as the rubric of their environment: rewards of sync steps")
def ours_in_theirs() -> None:
    """Play steps."""
    tree = WeightedSum([Sequential(Gate(Polite()), Polite()), Polite()], [0.25, 0.75])
    environment = TheirEcho(tree)
    environment.reset()
    same("polite", environment.step(HI).reward, 1.0)
    same("rude", environment.step(RUDE).reward, 0.0)


@check("… rewards of async steps, whether or not the tree has async members")
async def ours_in_theirs_async() -> None:
    """Play steps."""
    for tree, expected in (
        (WeightedSum([Polite(), Async()], [0.5, 0.5]), 0.75),
        (Sequential(Gate(Polite()), Async()), 0.5),
        (Polite(), 1.0),
    ):
        environment = TheirEcho(tree)
        environment.reset()
        same(repr(tree), (await environment.step_async(HI)).reward, expected)


@check("… their trainers' access: named_rubrics, get_rubric, last_score, hooks, reset")
def introspection() -> None:
    """Read the scores of a step."""
    environment = TheirEcho(Sequential(Gate(Polite()), Polite()))
    seen: list[Any] = []
    environment.rubric.register_forward_hook(lambda rubric, a, o, result: seen.append(result))
    environment.reset()
    environment.step(HI)
    scores = {name: rubric.last_score for name, rubric in environment.rubric.named_rubrics()}
    true("named_rubrics", scores, scores and set(scores.values()) == {1.0})
    name = next(iter(scores))
    same("get_rubric", environment.rubric.get_rubric(name).last_score, 1.0)
    same("the hook's results", seen, [1.0])


@check("… their step raises the error of a failing rubric of ours")
def failing() -> None:
    """Make a rubric fail."""

    def broken(action: Any, observation: Any) -> float:
        raise ArithmeticError("no manners")

    environment = TheirEcho(WeightedSum([Polite(), broken], [0.5, 0.5]))
    environment.reset()
    with raises("step", ArithmeticError, "no manners"):
        environment.step(HI)


@check("their rubric in our tree: score, and its component by name")
def theirs_in_ours() -> None:
    """Score a step."""
    tree = WeightedSum([Polite(), TheirBrief()], [0.75, 0.25])
    score, observation = _step(tree)
    same("value", score.value, 0.75 + 0.25 * 7 / 16)
    same("called", tree(HI, observation), 0.75 + 0.25 * 7 / 16)
    components = score.components()
    true("components", components, 7 / 16 in components.values())
    same("gated", _step(Sequential(Gate(Polite()), TheirBrief()), RUDE)[0].value, 0.0)
    true("repr", repr(tree), "TheirBrief" in repr(tree))


@check("… their containers")
def their_containers() -> None:
    """Score a step."""
    theirs = TheirSequential(
        TheirBrief(), TheirWeightedSum([TheirBrief(), TheirBrief()], [0.5, 0.5])
    )
    same("value", _step(Sequential(Gate(Polite()), theirs))[0].value, 7 / 16)


@check("… their async rubric")
async def their_async() -> None:
    """Score a step."""
    tree = WeightedSum([Polite(), TheirAsync()], [0.5, 0.5])
    observation = Echoed(text=HI.message)
    same("evaluate", await tree.evaluate(HI, observation), 0.625)
    score = await tree.score_async(HI, observation)
    same("score_async", score.value, 0.625)


@check("… reset resets it")
def reset() -> None:
    """Reset a tree."""
    theirs = TheirBrief()
    tree = Sequential(Gate(Polite()), theirs)
    tree.reset()
    same("resets", theirs.resets, 1)


@check("… their trajectory rubric scores the end only, and is reset")
def trajectory() -> None:
    """Play two episodes."""
    theirs = TheirWon(gamma=0.5)
    tree = WeightedSum([Polite(), theirs], [0.5, 0.5])
    for message, expected in (("please", 0.5), ("won", 0.5), ("reset", None), ("lost", 0.0)):
        if expected is None:
            tree.reset()
        else:
            same(message, _step(tree, EchoAction(message=message))[0].value, expected)
    same("compute_step_rewards", theirs.compute_step_rewards(), [0.0])


@check("… their failing rubric fails our tree, with its path")
def theirs_failing() -> None:
    """Make a rubric fail."""

    class Broken(TheirRubric):
        """A rubric that fails."""

        def forward(self, action: Any, observation: Any) -> float:
            """Raise an error."""
            raise ArithmeticError("not today")

    tree = WeightedSum([Polite(), Broken()], [0.5, 0.5])
    score, observation = _step(tree)
    same("status", str(score.status), "failed")
    same("value", score.value, None)
    names = [name for name, _ in tree.named_rubrics()]
    try:
        tree(HI, observation)
    except ArithmeticError as error:
        notes = getattr(error, "__notes__", [])
        true("notes", notes, any(names[-1] in note for note in notes))
    else:
        raise AssertionError("our tree turned the failure into a number")


if __name__ == "__main__":
    main()
