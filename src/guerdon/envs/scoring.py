"""From a rubric's evaluation to what an observation tells: reward, components, failure."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeVar

from guerdon.rubrics import frames, step_rewards
from guerdon.rubrics.call import namer, path_of
from guerdon.rubrics.components import add_components
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.concurrency import evaluate
from guerdon.rubrics.failure import say_caught, say_failure
from guerdon.rubrics.frames import Frame
from guerdon.rubrics.rubric import Rubric
from guerdon.types.observation import Observation

__all__ = ["attach", "score_step", "score_step_async", "tell_again"]

ObsT = TypeVar("ObsT", bound=Observation)

COMPONENTS = "reward_components"
ERROR = "reward_error"
FAILED = "reward_failed"
DEALT_WITH = "reward_dealt_with"
FINGERPRINT = "reward_fingerprint"
WEIGHTS = "reward_weights"
STEP_REWARDS = "step_rewards"
STEP_REWARDS_ERROR = "step_rewards_error"


def score_step(rubric: Rubric, action: Any, observation: ObsT) -> ObsT:
    """Score a step with a sync tree, and write what came out into the observation."""
    named: dict[str, float] = {}
    caught: dict[str, Exception] = {}
    driver = _recorder(rubric)
    token = frames.enter(None)  # nobody else records this evaluation
    try:
        reward = namer(rubric)(rubric, action, observation, named, caught)
    except Exception as error:
        return _write(rubric, observation, None, named, {}, error, driver)
    finally:
        frames.leave(token)
    return _write(rubric, observation, reward, named, caught, None, driver)


async def score_step_async(rubric: Rubric, action: Any, observation: ObsT) -> ObsT:
    """The same with any tree."""
    driver = _recorder(rubric)
    recorder = Frame(None)
    token = frames.enter(recorder)
    try:
        reward = await evaluate(rubric, action, observation)
    except Exception as error:
        named, caught = _components(rubric, recorder)
        return _write(rubric, observation, None, named, caught, error, driver)
    finally:
        frames.leave(token)
    return _write(rubric, observation, reward, *_components(rubric, recorder), None, driver)


def tell_again(observation: Observation, recorder: Frame) -> None:
    """Tell what a step's scoring told, where its author gave another observation than the scored.

    Args:
        observation: What the step gave.
        recorder: The frame that was entered around the step.
    """
    told = recorder.told
    # Those of a step before may stand in an observation that is shown again.
    if told is not None and observation.metadata.get(COMPONENTS) is not told[COMPONENTS]:
        _tell(observation, told)
        if ERROR in told:
            observation.reward = None


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


def _fingerprint(rubric: Rubric) -> str:
    try:
        return rubric.fingerprint()
    except Exception as error:  # the score stands, and can't be told from another's
        return f"unknown: {error}"


def _recorder(rubric: Rubric) -> Frame | None:
    """The frame that a driver has entered around the step of this rubric's environment.

    It is made to forget what the step has evaluated by hand before: that counts no more. Of an
    environment that stands inside another's step, it isn't the other's.
    """
    recorder = frames.current()
    if recorder is None or recorder.owner is None or recorder.owner.rubric is not rubric:
        return None
    recorder.entries.clear()
    return recorder


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
    recorder: Frame | None = None,
) -> ObsT:
    marks = rubric.__dict__  # past __setattr__
    scored_by = rubric._scored_by
    if scored_by is None:
        scored_by = marks["_scored_by"] = _fingerprint(rubric)
    if rubric._watch is not None:
        rubric._watch(named, observation.done)
    told: dict[str, Any] = {COMPONENTS: named, FINGERPRINT: scored_by}
    if isinstance(rubric, RubricComposer):
        # They may move: the reward is traced by them. One times its factor may be too large.
        weights = rubric.effective_weights
        told[WEIGHTS] = {name: each if isfinite(each) else None for name, each in weights.items()}
    if error is not None:
        told[ERROR] = say_failure(error)
        told[FAILED] = path_of(error) or ""
    elif caught:
        told[DEALT_WITH] = say_caught(caught)
    if observation.done and rubric._look().holds_trajectory:
        try:
            rewards = rubric.compute_step_rewards()
            step_rewards.check(rubric, rewards, len(rewards))
            told[STEP_REWARDS] = rewards
        except Exception as failed:
            told[STEP_REWARDS] = None
            told[STEP_REWARDS_ERROR] = say_failure(failed)
    observation.reward = reward
    _tell(observation, told)
    if recorder is not None:
        recorder.told = told
    return observation


def _tell(observation: Observation, told: dict[str, Any]) -> None:
    for old in (ERROR, FAILED, WEIGHTS, DEALT_WITH, STEP_REWARDS, STEP_REWARDS_ERROR):
        observation.metadata.pop(old, None)  # of an observation that is shown again
    observation.metadata.update(told)
