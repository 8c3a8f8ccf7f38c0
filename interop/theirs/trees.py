"""Our rubrics in their environments, and theirs in our trees: ``python -m interop.theirs.trees``.

It runs under the interpreter that has ``openenv``, with guerdon's source on its path.
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
from interop.checks import check, holds, main, raises, same


class Say(Action):
    """A text."""

    message: str


class Said(Observation):
    """The repeated text."""

    text: str = ""


class Polite(guerdon.Rubric):
    """One of ours: scores "please"."""

    def forward(self, action: Any, observation: Any) -> float:
        """1 where it does."""
        return float("please" in action.message)


class Asked(guerdon.Rubric):
    """One of ours that is async."""

    async def forward(self, action: Any, observation: Any) -> float:
        """A half, later."""
        await asyncio.sleep(0)
        return 0.5


class TheirBrief(TheirRubric):
    """One of theirs: scores brevity."""

    def __init__(self) -> None:
        super().__init__()
        self.resets = 0

    def forward(self, action: Any, observation: Any) -> float:
        """1 for nothing, 0 for 16 characters."""
        return 1 - min(len(observation.text), 16) / 16

    def reset(self) -> None:
        """Count."""
        self.resets += 1


class TheirAsked(TheirRubric):
    """One of theirs that is async."""

    async def forward(self, action: Any, observation: Any) -> float:
        """A quarter, later."""
        await asyncio.sleep(0)
        return 0.25


class TheirWon(TheirDiscounting):
    """One of theirs that looks at the whole episode."""

    def score_trajectory(self, trajectory: Any) -> float:
        """1 where it ended well."""
        return float(trajectory[-1][1].text == "won")


class TheirEcho(Environment[Say, Said, State]):
    """Their environment, as their guide writes it."""

    def __init__(self, rubric: Any) -> None:
        super().__init__(rubric=rubric)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Said:
        """Begin."""
        self._reset_rubric()
        self._state = State(episode_id=episode_id)
        return Said()

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Said:
        """Say it, and score it."""
        said = Said(text=action.message, done=action.message in ("won", "lost"))
        said.reward = self._apply_rubric(action, said)
        return said

    async def step_async(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Said:
        """The same, awaiting the rubric."""
        said = Said(text=action.message, done=action.message in ("won", "lost"))
        said.reward = await self._apply_rubric_async(action, said)
        return said

    @property
    def state(self) -> State:
        """The state of the episode."""
        return self._state


HI = Say(message="hi please")
RUDE = Say(message="hi")


def _step(rubric: Any, action: Say = HI) -> tuple[Any, Said]:
    """Returns our tree's score of a step of theirs."""
    said = Said(text=action.message, done=action.message in ("won", "lost"))
    return rubric.score(action, said), said


@check("our tree as the rubric of their environment: rewards of sync steps")
def ours_in_theirs() -> None:
    """Play."""
    tree = WeightedSum([Sequential(Gate(Polite()), Polite()), Polite()], [0.25, 0.75])
    environment = TheirEcho(tree)
    environment.reset()
    same("polite", environment.step(HI).reward, 1.0)
    same("rude", environment.step(RUDE).reward, 0.0)


@check("… rewards of async steps, whether or not the tree has async members")
async def ours_in_theirs_async() -> None:
    """Play."""
    for tree, wanted in (
        (WeightedSum([Polite(), Asked()], [0.5, 0.5]), 0.75),
        (Sequential(Gate(Polite()), Asked()), 0.5),
        (Polite(), 1.0),
    ):
        environment = TheirEcho(tree)
        environment.reset()
        same(repr(tree), (await environment.step_async(HI)).reward, wanted)


@check("… their trainer's look at it: named_rubrics, get_rubric, last_score, hooks, reset")
def looked_at() -> None:
    """Look."""
    environment = TheirEcho(Sequential(Gate(Polite()), Polite()))
    seen: list[Any] = []
    environment.rubric.register_forward_hook(lambda rubric, a, o, result: seen.append(result))
    environment.reset()
    environment.step(HI)
    scores = {name: rubric.last_score for name, rubric in environment.rubric.named_rubrics()}
    holds("named_rubrics", scores, scores and set(scores.values()) == {1.0})
    name = next(iter(scores))
    same("get_rubric", environment.rubric.get_rubric(name).last_score, 1.0)
    same("what the hook saw", seen, [1.0])


@check("… a rubric of ours that fails is raised by their step, and is no 0")
def failing() -> None:
    """Break it."""

    def broken(action: Any, observation: Any) -> float:
        raise ArithmeticError("no manners")

    environment = TheirEcho(WeightedSum([Polite(), broken], [0.5, 0.5]))
    environment.reset()
    with raises("step", ArithmeticError, "no manners"):
        environment.step(HI)


@check("their rubric in our tree: score, and its component by name")
def theirs_in_ours() -> None:
    """Score."""
    tree = WeightedSum([Polite(), TheirBrief()], [0.75, 0.25])
    score, said = _step(tree)
    same("value", score.value, 0.75 + 0.25 * 7 / 16)
    same("called", tree(HI, said), 0.75 + 0.25 * 7 / 16)
    components = score.components()
    holds("components", components, 7 / 16 in components.values())
    same("gated", _step(Sequential(Gate(Polite()), TheirBrief()), RUDE)[0].value, 0.0)
    holds("repr", repr(tree), "TheirBrief" in repr(tree))


@check("… their containers, too")
def their_containers() -> None:
    """Score."""
    theirs = TheirSequential(
        TheirBrief(), TheirWeightedSum([TheirBrief(), TheirBrief()], [0.5, 0.5])
    )
    same("value", _step(Sequential(Gate(Polite()), theirs))[0].value, 7 / 16)


@check("… an async one of theirs")
async def their_async() -> None:
    """Score."""
    tree = WeightedSum([Polite(), TheirAsked()], [0.5, 0.5])
    said = Said(text=HI.message)
    same("evaluate", await tree.evaluate(HI, said), 0.625)
    score = await tree.score_async(HI, said)
    same("score_async", score.value, 0.625)


@check("… reset reaches it")
def reset() -> None:
    """Reset."""
    theirs = TheirBrief()
    tree = Sequential(Gate(Polite()), theirs)
    tree.reset()
    same("resets", theirs.resets, 1)


@check("… their trajectory rubric: nothing until the end, forgotten by a reset")
def trajectory() -> None:
    """Play two episodes."""
    theirs = TheirWon(gamma=0.5)
    tree = WeightedSum([Polite(), theirs], [0.5, 0.5])
    for message, wanted in (("please", 0.5), ("won", 0.5), ("reset", None), ("lost", 0.0)):
        if wanted is None:
            tree.reset()
        else:
            same(message, _step(tree, Say(message=message))[0].value, wanted)
    same("compute_step_rewards", theirs.compute_step_rewards(), [0.0])


@check("… one that fails fails our tree, with its path")
def theirs_failing() -> None:
    """Break it."""

    class Broken(TheirRubric):
        """It breaks."""

        def forward(self, action: Any, observation: Any) -> float:
            """Never."""
            raise ArithmeticError("not today")

    tree = WeightedSum([Polite(), Broken()], [0.5, 0.5])
    score, said = _step(tree)
    same("status", str(score.status), "failed")
    same("value", score.value, None)
    names = [name for name, _ in tree.named_rubrics()]
    try:
        tree(HI, said)
    except ArithmeticError as error:
        notes = getattr(error, "__notes__", [])
        holds("notes", notes, any(names[-1] in note for note in notes))
    else:
        raise AssertionError("a tree of ours took its failure for a number")


if __name__ == "__main__":
    main()
