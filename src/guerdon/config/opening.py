"""Opening the reward that a person named: code, or the file of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.rubrics.functions.loading import (
    load_reward,
)
from guerdon.rubrics.rubric import Rubric

__all__ = ["is_pipeline_file", "open_reward"]

SUFFIXES = (".yaml", ".yml", ".json")


def is_pipeline_file(spec: str) -> bool:
    """Whether a person named the file of a pipeline, rather than code.

    Example:
        >>> is_pipeline_file("reward.yaml"), is_pipeline_file("reward.py:reward")
        (True, False)
    """
    return Path(spec).suffix.lower() in SUFFIXES


@contextmanager
def open_reward(
    spec: str, *, at: int | None = None, check: bool = True
) -> Iterator[Rubric | RewardFunction]:
    """The reward that a person named, with its services open as long as the context lasts.

    Example:
        >>> from guerdon import open_reward
        >>> with open_reward("guerdon:NumericAnswer") as reward:
        ...     reward
        NumericAnswer(field='content', expected=None, tolerance=0.0)

    Args:
        spec: ``reward.yaml``, or what `load_reward` takes.
        at: Where the schedules of a pipeline stand: the episode, and the training step, from 0.
        check: See first that the services of a pipeline are there.

    Raises:
        ServiceUnavailableError: A service isn't there; it is named.
        RewardConfigError: The file can't be meant.
        LoadError: The code can't be loaded.
        InvalidArgumentError: `at` is given for a reward in code, which has no schedules.
    """
    if not is_pipeline_file(spec):
        if at is not None:
            raise InvalidArgumentError(f"{spec} is no reward file, so that it has no schedules")
        yield load_reward(spec)
        return
    from guerdon.config.live.live import LiveReward
    from guerdon.config.pipeline import RewardPipeline

    with RewardPipeline.of(spec) as pipeline:
        rubric = pipeline.make()
        if check:
            pipeline.check_services()
        live = LiveReward(pipeline.make(), config=pipeline.config)
        live.progress.report(training_step=at or 0, episode=at or 0)
        live.apply(rubric)
        yield rubric
