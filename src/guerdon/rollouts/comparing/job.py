"""`ComparisonJob`: two rewards that a person named, on a file of rollouts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from guerdon._loading import (
    PREFIX,
    split_spec,
)
from guerdon.config.pipeline import is_pipeline_file
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.comparing.changes import (
    RewardChange,
    changes_of_code,
    changes_of_configs,
    changes_of_rewards,
)
from guerdon.rollouts.comparing.comparison import ComparisonTally
from guerdon.rollouts.comparing.report import ComparisonReport
from guerdon.rollouts.scoring.desk import Desk, Settings
from guerdon.rollouts.scoring.files import Line, name_of_file, open_file
from guerdon.rollouts.scoring.formats import reader_of
from guerdon.rollouts.scoring.function_scorer import FunctionScorer
from guerdon.rollouts.scoring.grouping import batches_of
from guerdon.rollouts.scoring.interrupts import Interrupts
from guerdon.rollouts.scoring.scorers import RolloutScorer
from guerdon.rubrics.composer import RubricComposer

__all__ = ["ComparisonJob"]

PROGRESS_SECONDS = 0.2


@dataclass(slots=True)
class ComparisonJob:
    """Scores every rollout of a file with two rewards, and compares.

    Both are loaded into this process, and each reads the rollouts for itself, one or one group at
    a time. See `ComparisonTally` for what is kept.

    Example:
        >>> import json, pathlib
        >>> path = pathlib.Path("rollouts.jsonl")
        >>> _ = path.write_text(json.dumps({"id": 1, "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]}))
        >>> job = ComparisonJob("guerdon:NumericAnswer", "guerdon:ExactMatch", "rollouts.jsonl")
        >>> report = job.run()
        >>> report.comparison.rows, str(report.changes[0]), report.comparison.movement.mean
        (1, "the reward: 'NumericAnswer' → 'ExactMatch'", -1.0)

    Attributes:
        before: A reward as ``reward.yaml``, ``module:name`` or ``file.py:name``.
        after: Another, or the same.
        rollouts: The file; ``-`` is standard input.
        by: A column to break the comparison down by.
        top: How many rollouts, and flipped pairs, are told one by one, from 0.
        format: How the rollouts are written: ``jsonl``, or ``tau-bench``.
        score_failed: Whether an episode that ended with an error is scored all the same.
        at: Where the schedules of reward files stand: the episode and the training step.
        progress: Called now and then with how many rows are done and how many bytes are read.
    """

    before: str
    after: str
    rollouts: str
    by: str | None = None
    top: int = 10
    format: str = "jsonl"
    score_failed: bool = False
    at: int | None = None
    progress: Callable[[int, int], None] | None = None
    _interrupts: Interrupts = field(default_factory=Interrupts, init=False, repr=False)

    def run(self) -> ComparisonReport:
        """Score all rows with both; ctrl-C ends it early, and what is finished is compared.

        Raises:
            LoadError: A reward can't be loaded.
            RewardConfigError: The file of a reward can't be meant.
            ServiceUnavailableError: A service of a reward isn't there.
            InvalidArgumentError: The arguments don't go together.
            RolloutError: There is no rollout to score. (Broken rows are rows that failed.)
        """
        tally = ComparisonTally(top=self.top)
        specs = (self.before, self.after)
        if self.at is not None and not any(map(is_pipeline_file, specs)):
            raise InvalidArgumentError(
                f"neither {self.before} nor {self.after} is a reward file, so that there are no "
                "schedules to stand at a place"
            )
        read = reader_of(self.format)
        with contextlib.ExitStack() as stack:
            # What a reward prints may not get between the lines of the report.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            seen = set(sys.modules)
            before = stack.enter_context(self._desk(self.before, by=self.by))
            _refuse_namesakes(self.before, self.after, set(sys.modules) - seen)
            after = stack.enter_context(self._desk(self.after))
            changes = self._changes(before, after)
            file = stack.enter_context(open_file(self.rollouts))
            together = before.takes_groups or after.takes_groups
            batches = batches_of(file, self.rollouts, read, together=together)
            start = perf_counter()
            stack.enter_context(self._interrupts)
            interrupted = self._score(batches, before, after, tally)
            seconds = perf_counter() - start
        if not tally.rows and not interrupted:
            raise RolloutError(f"{name_of_file(self.rollouts)} holds no rollouts: it is empty")
        return ComparisonReport(
            tally.result(), tuple(changes), before.fingerprint, after.fingerprint, seconds,
            interrupted,
        )  # fmt: skip

    def _desk(self, spec: str, *, by: str | None = None) -> Desk:
        at = self.at if is_pipeline_file(spec) else None
        return Desk(Settings(spec, by=by, score_failed=self.score_failed, at=at))

    def _changes(self, before: Desk, after: Desk) -> list[RewardChange]:
        one, other = _reward(before), _reward(after)
        if not (is_pipeline_file(self.before) and is_pipeline_file(self.after)):
            return changes_of_rewards(one, other)
        from guerdon.config.schema import RewardConfig

        configs = map(RewardConfig.from_file, (self.before, self.after))
        changes = changes_of_configs(*configs)
        if isinstance(one, RubricComposer) and isinstance(other, RubricComposer):
            changes += changes_of_code(one, other, changes)
        return changes

    def _score(
        self, batches: Iterator[list[Line]], before: Desk, after: Desk, tally: ComparisonTally
    ) -> bool:
        """Score all there is; whether it was interrupted."""
        interrupts, read, told = self._interrupts, 0, 0.0
        try:
            while not interrupts.asked:
                interrupts.allowed = True
                lines = next(batches, None)
                both = (before.score(lines), after.score(lines)) if lines is not None else None
                interrupts.allowed = False
                if lines is None or both is None:
                    break
                for one, other, part in zip(both[0].rows, both[1].rows, both[0].parts, strict=True):
                    tally.add(one, other, part=part)
                read += sum(len(line) for _, line in lines)
                if self.progress is not None and perf_counter() - told > PROGRESS_SECONDS:
                    told = perf_counter()
                    self.progress(tally.rows, read)
        except KeyboardInterrupt:
            return True
        return interrupts.asked


def _reward(desk: Desk) -> Any:
    scorer = desk.scorer
    if isinstance(scorer, FunctionScorer):
        return scorer.function
    assert isinstance(scorer, RolloutScorer)  # a sandbox is not asked for
    return scorer.rubric


def _refuse_namesakes(before: str, after: str, loaded: set[str]) -> None:
    """Refuse two rewards that import different modules by one name: the second would get the first.

    Args:
        before: The reward that is loaded already.
        after: The one that is to be loaded.
        loaded: The names of the modules that loading the first has brought.

    Raises:
        InvalidArgumentError: There is such a module.
    """
    folders = [_folder(spec) for spec in (before, after)]
    own = Path(split_spec(before)[0]).resolve() if not is_pipeline_file(before) else None
    for name in sorted(loaded):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not (path := Path(file).resolve()).is_relative_to(folders[0]):
            continue
        namesake = folders[1] / path.relative_to(folders[0])
        # A file that is named itself is loaded by a name that is its own.
        if path == own or name.startswith(PREFIX) or not namesake.is_file():
            continue
        if namesake.read_bytes() != path.read_bytes():
            raise InvalidArgumentError(
                f"{path} and {namesake} are both the module {name!r}, and one process can only "
                "have one of them: give one another name"
            )


def _folder(spec: str) -> Path:
    """Where the modules of a reward lie."""
    if is_pipeline_file(spec):
        return Path(spec).resolve().parent
    source = split_spec(spec)[0]
    return Path(source).resolve().parent if source.endswith(".py") else Path.cwd()
