"""`ComparisonJob`: score a file of rollouts with two rewards, and compare."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from guerdon._loading import PREFIX, split_spec
from guerdon.config.pipeline import is_pipeline_file
from guerdon.config.schema import RewardConfig
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.comparing.changes import (
    RewardChange,
    changes_of_code,
    changes_of_configs,
    changes_of_rewards,
)
from guerdon.rollouts.comparing.comparison import Comparison, ComparisonReport
from guerdon.rollouts.scoring.execution import Interrupts
from guerdon.rollouts.scoring.job import ScoringJob, ScoringPipeline
from guerdon.rollouts.scoring.reading import Line, name_of_file, open_file, read_batches
from guerdon.rollouts.scoring.scorers import FunctionScorer, RubricScorer
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric

__all__ = ["ComparisonJob"]


@dataclass(frozen=True, slots=True)
class ComparisonJob:
    """Scores every rollout of a file with two rewards, and compares.

    Both rewards are loaded into this process. Each reads the rollouts itself, one or one group at
    a time, so that neither sees what the other changes in them.

    Example:
        >>> import json, pathlib
        >>> path = pathlib.Path("rollouts.jsonl")
        >>> _ = path.write_text(json.dumps({"id": 1, "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]}))
        >>> job = ComparisonJob("guerdon:NumericAnswer", "guerdon:ExactMatch", "rollouts.jsonl")
        >>> report = job.run()
        >>> report.comparison.rows, str(report.changes[0])
        (1, "the reward: 'NumericAnswer' → 'ExactMatch'")

    Attributes:
        before: A reward as ``reward.yaml``, ``module:name`` or ``file.py:name``.
        after: Another reward, or the same.
        rollouts: The file of rollouts; ``-`` is standard input.
        by: A column to break the comparison down by.
        top: How many rollouts, and flipped pairs, are listed, from 0.
        format: The format of the rollouts: ``jsonl`` or ``tau-bench``.
        score_failed: Whether to score episodes that ended with an error.
        at: The position of the schedules of reward files: the episode and the training step.
    """

    before: str
    after: str
    rollouts: str
    by: str | None = None
    top: int = 10
    format: str = "jsonl"
    score_failed: bool = False
    at: int | None = None

    def run(self, progress: Callable[[int, int], None] | None = None) -> ComparisonReport:
        """Score all rows with both rewards; ctrl-C ends the run and compares the finished rows.

        Args:
            progress: Called after each rollout, or group, with the number of finished rows and of
                bytes read.

        Raises:
            LoadError: A reward can't be loaded.
            RewardConfigError: A reward file is invalid.
            ServiceUnavailableError: A service of a reward isn't available.
            InvalidArgumentError: The options are invalid, or exclude each other.
            RolloutError: There is no rollout to score. (Invalid lines are rows that failed.)
        """
        comparison = Comparison(self.top)
        if self.at is not None and not any(map(is_pipeline_file, (self.before, self.after))):
            raise InvalidArgumentError(
                f"--at requires a reward file with schedules; neither {self.before} nor "
                f"{self.after} is one"
            )
        with contextlib.ExitStack() as stack:
            # What a reward prints must not get between the lines of the report.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            loaded = set(sys.modules)
            before = stack.enter_context(self._pipeline(self.before))
            _refuse_namesakes(self.before, self.after, set(sys.modules) - loaded)
            after = stack.enter_context(self._pipeline(self.after))
            changes = self._changes(_reward_of(before), _reward_of(after))
            file = stack.enter_context(open_file(self.rollouts))
            together = before.takes_groups or after.takes_groups
            batches = read_batches(file, self.rollouts, format=self.format, together=together)
            start = perf_counter()
            interrupted = _compare(batches, before, after, comparison, progress)
            seconds = perf_counter() - start
        if not comparison.rows and not interrupted:
            raise RolloutError(f"{name_of_file(self.rollouts)} has no rollouts: it is empty")
        return ComparisonReport(
            comparison, tuple(changes), before.fingerprint, after.fingerprint, seconds, interrupted
        )

    def _pipeline(self, reward: str) -> ScoringPipeline:
        at = self.at if is_pipeline_file(reward) else None
        return ScoringPipeline(
            ScoringJob(self.rollouts, reward, by=self.by, score_failed=self.score_failed, at=at)
        )

    def _changes(
        self, before: Rubric | RewardFunction, after: Rubric | RewardFunction
    ) -> list[RewardChange]:
        if not (is_pipeline_file(self.before) and is_pipeline_file(self.after)):
            return changes_of_rewards(before, after)
        changes = changes_of_configs(*map(RewardConfig.from_file, (self.before, self.after)))
        if isinstance(before, RubricComposer) and isinstance(after, RubricComposer):
            changes += changes_of_code(before, after, changes)
        return changes


def _reward_of(pipeline: ScoringPipeline) -> Rubric | RewardFunction:
    scorer = pipeline.scorer
    assert isinstance(scorer, RubricScorer | FunctionScorer)
    return scorer.rubric if isinstance(scorer, RubricScorer) else scorer.function


def _compare(
    batches: Iterator[list[Line]],
    before: ScoringPipeline,
    after: ScoringPipeline,
    comparison: Comparison,
    progress: Callable[[int, int], None] | None,
) -> bool:
    """Score all batches with both rewards; returns whether ctrl-C ended it."""
    read = 0
    with Interrupts() as interrupts:
        try:
            while not interrupts.requested:
                with interrupts.allowed():
                    lines = next(batches, None)
                    if lines is None:
                        break
                    one, other = before.score(lines), after.score(lines)
                for (row, part), (row_after, _) in zip(one, other, strict=True):
                    comparison.add(row, row_after, part)
                read += sum(len(line) for _, line in lines)
                if progress is not None:
                    progress(comparison.rows, read)
        except KeyboardInterrupt:
            return True
        return interrupts.requested


def _refuse_namesakes(before: str, after: str, loaded: set[str]) -> None:
    """Refuse rewards that import different modules by one name: the second would get the first's.

    Args:
        before: The reward that is loaded.
        after: The reward that is loaded next.
        loaded: The names of the modules that loading the first added.

    Raises:
        InvalidArgumentError: There is such a module.
    """
    folders = [_folder_of(reward) for reward in (before, after)]
    own = Path(split_spec(before)[0]).resolve() if not is_pipeline_file(before) else None
    for name in sorted(loaded):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not (path := Path(file).resolve()).is_relative_to(folders[0]):
            continue
        namesake = folders[1] / path.relative_to(folders[0])
        # The file of a reward is loaded under a name of its own.
        if path == own or name.startswith(PREFIX) or not namesake.is_file():
            continue
        if namesake.read_bytes() != path.read_bytes():
            raise InvalidArgumentError(
                f"{path} and {namesake} are both the module {name!r}, and a process can only load "
                "one of them; rename one"
            )


def _folder_of(reward: str) -> Path:
    """The folder of the modules of a reward."""
    source = reward if is_pipeline_file(reward) else split_spec(reward)[0]
    is_file = is_pipeline_file(reward) or source.endswith(".py")
    return Path(source).resolve().parent if is_file else Path.cwd()
