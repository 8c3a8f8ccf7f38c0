"""From a rubric's evaluation to what an observation tells: reward, components, failure."""

from __future__ import annotations

from typing import Any, TypeVar

from guerdon.models.observation import Observation
from guerdon.rubrics import frames, step_rewards
from guerdon.rubrics.call import namer
from guerdon.rubrics.components import add_components
from guerdon.rubrics.concurrency import evaluate
from guerdon.rubrics.failure import say_caught, say_failure
from guerdon.rubrics.frames import Frame
from guerdon.rubrics.rubric import Rubric

__all__ = ["attach", "score_step", "score_step_async"]

ObsT = TypeVar("ObsT", bound=Observation)

COMPONENTS = "reward_components"
ERROR = "reward_error"
DEALT_WITH = "reward_dealt_with"
STEP_REWARDS = "step_rewards"


def score_step(rubric: Rubric, action: Any, observation: ObsT) -> ObsT:
    """Score a step with a sync tree, and write what came out into the observation."""
    named: dict[str, float] = {}
    caught: dict[str, Exception] = {}
    _forget_others()
    token = frames.enter(None)  # nobody else records this evaluation
    try:
        reward = namer(rubric)(rubric, action, observation, named, caught)
    except Exception as error:
        return _write(rubric, observation, None, named, {}, error)
    finally:
        frames.leave(token)
    return _write(rubric, observation, reward, named, caught)


async def score_step_async(rubric: Rubric, action: Any, observation: ObsT) -> ObsT:
    """The same with any tree."""
    _forget_others()
    recorder = Frame(None)
    token = frames.enter(recorder)
    try:
        reward = await evaluate(rubric, action, observation)
    except Exception as error:
        return _write(rubric, observation, None, *_components(rubric, recorder), error)
    finally:
        frames.leave(token)
    return _write(rubric, observation, reward, *_components(rubric, recorder))


def attach(
    rubric: Rubric, observation: ObsT, recorder: Frame, error: Exception | None = None
) -> ObsT:
    """Tell the components of the last evaluation that was recorded while an author's step ran.

    Args:
        rubric: The environment's.
        observation: What the step gave; its reward stands.
        recorder: The frame that was entered around the step.
        error: What the evaluation raised, if anything.
    """
    if not any(entry[0] is rubric for entry in recorder.entries):
        return observation  # `score` has told them, or the author scored without the rubric
    reward = None if error is not None else observation.reward
    return _write(rubric, observation, reward, *_components(rubric, recorder), error)


def _forget_others() -> None:
    """Let evaluations that the author's step has made by hand before count no more."""
    recorder = frames.current()
    if recorder is not None and recorder.rubric is None:
        recorder.entries.clear()


def _components(rubric: Rubric, recorder: Frame) -> tuple[dict[str, float], dict[str, Exception]]:
    named: dict[str, float] = {}
    caught: dict[str, Exception] = {}
    for entry in reversed(recorder.entries):
        if entry[0] is rubric:
            add_components(named, rubric, entry[3], "", caught)
            break
    return named, caught


def _write(
    rubric: Rubric,
    observation: ObsT,
    reward: float | None,
    named: dict[str, float],
    caught: dict[str, Exception],
    error: Exception | None = None,
) -> ObsT:
    observation.reward = reward
    metadata = observation.metadata
    metadata[COMPONENTS] = named
    for old in (ERROR, DEALT_WITH, STEP_REWARDS):  # of an observation that is shown again
        metadata.pop(old, None)
    if error is not None:
        metadata[ERROR] = say_failure(error)
    elif caught:
        metadata[DEALT_WITH] = say_caught(caught)
    if observation.done and rubric._look().holds_trajectory:
        try:
            rewards = rubric.compute_step_rewards()
            step_rewards.check(rubric, rewards, len(rewards))
            metadata[STEP_REWARDS] = rewards
        except Exception as failed:
            metadata[STEP_REWARDS] = None
            metadata.setdefault(ERROR, say_failure(failed))
    return observation
