"""Comparing the scores of two rewards for the same rollouts: of rows, of rewards, of a file."""

from __future__ import annotations

import contextlib
import copy
import heapq
import itertools
import math
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from guerdon._loading import PREFIX, split_spec
from guerdon._validation import check_integer, is_finite
from guerdon.config.pipeline import is_pipeline_file
from guerdon.config.schema import RewardConfig
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.comparing.changes import (
    RewardChange,
    changes_of_code,
    changes_of_configs,
    changes_of_rewards,
)
from guerdon.rollouts.comparing.group_comparison import GroupComparison, GroupRanks, brief
from guerdon.rollouts.scoring.execution import Interrupts
from guerdon.rollouts.scoring.job import (
    ScoredRow,
    ScoringJob,
    ScoringPipeline,
    refuse_overwriting,
)
from guerdon.rollouts.scoring.outage import Outage, service_failure
from guerdon.rollouts.scoring.reading import Line, name_of_file, open_file, read_batches
from guerdon.rollouts.scoring.result_rows import ResultRow, RowWriter, encode_row
from guerdon.rollouts.scoring.scorers import (
    FunctionScorer,
    RubricScorer,
    score_rollouts,
    scorer_of,
)
from guerdon.rollouts.scoring.summary import MAX_TEXT, Mean, Summary, bounded_name
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.types.rollout import Rollout

__all__ = ["Comparison", "ComparisonJob", "ComparisonReport", "compare_rewards", "compare_rows"]

# The quantiles of the differences that are reported.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(slots=True)
class Movement:
    """How scores moved, over the rollouts with a valid score before and after.

    A difference is the score after minus the score before. A mean that overflows is None.

    Attributes:
        rows: The number of rollouts, valid or not.
        rose: How many have a higher score after.
        fell: How many have a lower score after.
        before: The mean of the scores before.
        after: The mean of the scores after.
        difference: The mean of the differences.
        differences: The differences, for their quantiles; None doesn't keep them.
    """

    rows: int = 0
    rose: int = 0
    fell: int = 0
    before: Mean = field(default_factory=Mean)
    after: Mean = field(default_factory=Mean)
    difference: Mean = field(default_factory=Mean)
    differences: array[float] | None = None

    @property
    def both(self) -> int:
        """How many rollouts have a valid score before and after."""
        return self.difference.count

    @property
    def unmoved(self) -> int:
        """How many have the same score."""
        return self.both - self.rose - self.fell

    def add(self, scores: tuple[float, float] | None) -> None:
        """Count a rollout: its scores before and after; None if one of them isn't valid."""
        self.rows += 1
        if scores is None:
            return
        before, after = scores
        difference = after - before
        self.before.add(before)
        self.after.add(after)
        self.difference.add(difference)
        self.rose += difference > 0.0
        self.fell += difference < 0.0
        if self.differences is not None:
            self.differences.append(difference)

    def quantiles(self) -> dict[float, float | None]:
        """Quantiles of the differences by their share in [0, 1]; empty if they aren't kept."""
        ordered = sorted(self.differences or ())
        return {share: quantile(ordered, share) for share in QUANTILES} if ordered else {}

    def to_dict(self) -> dict[str, Any]:
        """The movement as JSON data."""
        quantiles = {f"{share:g}": value for share, value in self.quantiles().items()}
        return {
            "rows": self.rows,
            "valid_in_both": self.both,
            "mean_before": self.before.value,
            "mean_after": self.after.value,
            "mean_difference": self.difference.value,
            "rose": self.rose,
            "fell": self.fell,
            "unmoved": self.unmoved,
            **({"quantiles": quantiles} if quantiles else {}),
        }


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """A quantile of sorted values, interpolated linearly.

    Type 7 of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The American
    Statistician 50 (1996).

    Example:
        >>> quantile([0.0, 1.0, 5.0], 0.5), quantile([0.0, 1.0, 5.0], 0.75)
        (1.0, 3.0)

    Args:
        ordered: At least one value, in ascending order.
        share: In [0, 1].

    Returns:
        The quantile; None if it overflows.
    """
    position = share * (len(ordered) - 1)
    low = ordered[math.floor(position)]
    part = position - math.floor(position)
    found = low if part == 0.0 else low + part * (ordered[math.ceil(position)] - low)
    return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class RowMove:
    """One rollout before and after.

    Attributes:
        id: The rollout's id.
        group: The rollout's group.
        before: Its score before; None if it isn't valid.
        after: Its score after; None if it isn't valid.
        difference: The score after minus the score before; None if one is missing.
        components_before: Its components before, by dotted name.
        components_after: Its components after.
        error: What failed, if only one score is valid.
    """

    id: Any
    group: Any
    before: float | None
    after: float | None
    difference: float | None
    components_before: Mapping[str, float]
    components_after: Mapping[str, float]
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The rollout as JSON data."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name != "error" or value is not None
        }


@dataclass(slots=True)
class Comparison:
    """The scores of two rewards for the same rollouts, in bounded memory.

    A rollout without a valid score from one of them is counted as such; it isn't a difference and
    isn't ranked. For each rollout the difference is kept and, if it has a group, its id (up to 200
    characters) and both scores.

    Example:
        >>> from guerdon import NumericAnswer, Rollout, compare_rewards
        >>> rollouts = [Rollout.from_row({"id": text, "group": "g", "ground_truth": "42",
        ...     "messages": [{"role": "assistant", "content": text}]}) for text in ("42", "43")]
        >>> found = compare_rewards(NumericAnswer(), NumericAnswer(tolerance=1.0), rollouts)
        >>> found.comparison.movement.difference.value, found.comparison.groups.pairs.ties_made
        (0.5, 1)

    Attributes:
        top: How many rollouts, and flipped pairs, are listed, from 0.
        before: The summary of the rows of the reward before.
        after: The summary of the rows of the reward after.
        movement: How the scores moved.
        only_before: How many rollouts have a valid score before only.
        only_after: How many have a valid score after only.
        neither: How many have no valid score.
        components: The movement of each component, over the rollouts with valid scores that have
            it before and after; ``both`` is 0 for a component of one reward only.
        lost: The first rollouts with a valid score before only, with what failed after.
        won: The first rollouts with a valid score after only, with what failed before.
        parts: The movement for each value of a column.

    Raises:
        InvalidArgumentError: `top` is not an int >= 0.
    """

    top: int = 10
    before: Summary = field(default_factory=Summary)
    after: Summary = field(default_factory=Summary)
    movement: Movement = field(default_factory=lambda: Movement(differences=array("d")))
    only_before: int = 0
    only_after: int = 0
    neither: int = 0
    components: dict[str, Movement] = field(default_factory=dict)
    lost: list[RowMove] = field(default_factory=list)
    won: list[RowMove] = field(default_factory=list)
    parts: dict[str, Movement] = field(default_factory=dict)
    _furthest: list[tuple[float, int, RowMove]] = field(default_factory=list)
    _ranks: GroupRanks = field(default_factory=GroupRanks)

    def __post_init__(self) -> None:
        check_integer("top", self.top, low=0)

    @property
    def rows(self) -> int:
        """The number of rollouts."""
        return self.movement.rows

    @property
    def failed(self) -> int:
        """How many rollouts have no valid score before or after."""
        return self.only_before + self.only_after + self.neither

    @property
    def moved(self) -> tuple[RowMove, ...]:
        """The rollouts whose scores moved most, the furthest first."""
        return tuple(move for *_, move in sorted(self._furthest, reverse=True))

    @property
    def groups(self) -> GroupComparison | None:
        """How the rankings within groups changed; None if no rollout has a group.

        It is computed when it is read.
        """
        return self._ranks.compare(top=self.top)

    def add(self, before: ResultRow, after: ResultRow, part: str | None = None) -> None:
        """Add a rollout.

        Args:
            before: Its row before.
            after: Its row after.
            part: The part of a breakdown that it belongs to.

        Raises:
            InvalidArgumentError: The rows aren't of one rollout, or a score isn't a finite number.
        """
        self._check(before, after)
        self.before.add(before)
        self.after.add(after)
        one, other = before["score"], after["score"]
        scores = None if one is None or other is None else (one, other)
        self.movement.add(scores)
        self._ranks.add(before["group"], before["id"], scores)
        if part is not None:
            part = bounded_name(part, self.parts)
            self.parts.setdefault(part, Movement()).add(scores)
        if scores is None:
            self._add_failure(before, after)
            return
        components = before["components"], after["components"]
        for name in {**components[0], **components[1]}:
            has = name in components[0] and name in components[1]
            values = (components[0][name], components[1][name]) if has else None
            self.components.setdefault(name, Movement()).add(values)
        distance = abs(scores[1] - scores[0])
        if self.top and distance:
            # While it is among those that moved furthest, earlier ones first.
            heapq.heappush(self._furthest, (distance, -self.rows, _move(before, after)))
            if len(self._furthest) > self.top:
                heapq.heappop(self._furthest)

    def _check(self, before: ResultRow, after: ResultRow) -> None:
        row = f"row {self.rows + 1}"
        for name in ("id", "group"):
            if repr(before[name]) != repr(after[name]):
                raise InvalidArgumentError(
                    f"{row} has the {name} {before[name]!r:.80} before and {after[name]!r:.80} "
                    "after; both must be of the same rollouts, in the same order"
                )
        for when, score in (("before", before["score"]), ("after", after["score"])):
            if score is not None and not is_finite(score):
                raise InvalidArgumentError(
                    f"{row} must have a finite score or None {when}, got {score!r:.80}"
                )

    def _add_failure(self, before: ResultRow, after: ResultRow) -> None:
        if before["score"] is None and after["score"] is None:
            self.neither += 1
            return
        won = before["score"] is None
        self.only_after += won
        self.only_before += not won
        listed, failed = (self.won, before) if won else (self.lost, after)
        if len(listed) < self.top:
            listed.append(_move(before, after, (failed["error"] or "it is invalid")[:MAX_TEXT]))

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON data."""
        data: dict[str, Any] = {
            **self.movement.to_dict(),
            "valid_before_only": self.only_before,
            "valid_after_only": self.only_after,
            "valid_in_neither": self.neither,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "components": {name: each.to_dict() for name, each in self.components.items()},
            "moved": [each.to_dict() for each in self.moved],
            "lost": [each.to_dict() for each in self.lost],
            "won": [each.to_dict() for each in self.won],
        }
        groups = self.groups
        if groups is not None:
            data["groups"] = groups.to_dict()
        if self.parts:
            data["by"] = {name: each.to_dict() for name, each in self.parts.items()}
        return data


def _move(before: ResultRow, after: ResultRow, error: str | None = None) -> RowMove:
    one, other = before["score"], after["score"]
    difference = math.nan if one is None or other is None else other - one
    return RowMove(
        brief(before["id"]),
        brief(before["group"]),
        one,
        other,
        difference if math.isfinite(difference) else None,
        before["components"],
        after["components"],
        error,
    )


def compare_rows(
    before: Iterable[ResultRow],
    after: Iterable[ResultRow],
    *,
    top: int = 10,
) -> Comparison:
    """Compare the rows of two rewards for the same rollouts, in the same order.

    Example:
        >>> from guerdon import Rollout, score_rollouts, as_rubric
        >>> rollouts = [Rollout.from_row({"id": each, "group": "g", "messages": [
        ...     {"role": "assistant", "content": each}]}) for each in ("a", "bb")]
        >>> long = as_rubric(lambda action, observation: float(len(action.content)))
        >>> short = as_rubric(lambda action, observation: 1.0 / len(action.content))
        >>> found = compare_rows(score_rollouts(long, rollouts), score_rollouts(short, rollouts))
        >>> found.movement.difference.value, found.moved[0].id, found.groups.pairs.flipped
        (-0.75, 'bb', 1)

    Args:
        before: The rows of one reward; they are read once.
        after: The rows of the other reward.
        top: How many rollouts, and flipped pairs, are listed, from 0.

    Raises:
        InvalidArgumentError: The rows aren't of the same rollouts, a score isn't a finite number,
            or `top` is invalid.
    """
    comparison = Comparison(top)
    end: Any = object()
    for one, other in itertools.zip_longest(before, after, fillvalue=end):
        if one is end or other is end:
            raise InvalidArgumentError(
                f"after row {comparison.rows} only one reward has rows; both must be of the same "
                "rollouts"
            )
        comparison.add(one, other)
    return comparison


# Rewards -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """Two rewards on the same rollouts: what changed in them, and how the scores moved.

    Example:
        >>> from guerdon import NumericAnswer
        >>> report = compare_rewards(NumericAnswer(), NumericAnswer(), [])
        >>> report.changes, report.comparison.rows, report.is_unsteady
        ((), 0, False)

    Attributes:
        comparison: How the scores moved.
        changes: What changed from one reward to the other.
        fingerprint_before: The fingerprint of the reward before, as in its result rows.
        fingerprint_after: The fingerprint of the reward after.
        seconds: How long scoring with both took.
        interrupted: Whether ctrl-C or a service that is down ended the run; the rollouts up to
            there are compared.
        stopped: Why the run ended, because a service is down, and how it is continued.
    """

    comparison: Comparison
    changes: tuple[RewardChange, ...]
    fingerprint_before: str
    fingerprint_after: str
    seconds: float = 0.0
    interrupted: bool = False
    stopped: str | None = None

    @property
    def is_unsteady(self) -> bool:
        """Whether the same reward returned two different scores, so that it isn't repeatable."""
        movement = self.comparison.movement
        same = self.fingerprint_before == self.fingerprint_after
        return same and bool(movement.rose or movement.fell)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {
            "fingerprints": {"before": self.fingerprint_before, "after": self.fingerprint_after},
            "changes": [change.to_dict() for change in self.changes],
            "interrupted": self.interrupted,
            "unsteady": self.is_unsteady,
            "seconds": round(self.seconds, 6),
            **self.comparison.to_dict(),
        }


def compare_rewards(
    before: Rubric | RewardFunction,
    after: Rubric | RewardFunction,
    rollouts: Iterable[Rollout],
    *,
    top: int = 10,
    score_failed: bool = False,
) -> ComparisonReport:
    """Score rollouts with two rewards, and compare.

    `after` scores copies of the rollouts, so that what `before` changes in them has no effect.

    Example:
        >>> from guerdon import Rollout, NumericAnswer
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 43"}]})
        >>> strict, lenient = NumericAnswer(), NumericAnswer(tolerance=1.0)
        >>> report = compare_rewards(strict, lenient, [rollout])
        >>> str(report.changes[0]), report.comparison.moved[0].difference
        ('tolerance: 0.0 → 1.0', 1.0)

    Args:
        before: A rubric, which is reset before each rollout, or a reward function.
        after: A rubric or a reward function.
        rollouts: Any number. For batch functions, those of a group must be consecutive.
        top: How many rollouts, and flipped pairs, are listed, from 0.
        score_failed: Whether to score episodes that ended with an error; by default their rows
            are invalid.

    Raises:
        RolloutError: A reward is a batch function and a group is split.
        InvalidArgumentError: `top` is not an int >= 0.
    """
    start = perf_counter()
    changes = tuple(changes_of_rewards(before, after))
    # A copy is made before either reward has seen the rollout.
    originals, copies = itertools.tee((each, copy.deepcopy(each)) for each in rollouts)
    comparison = compare_rows(
        score_rollouts(before, (each for each, _ in originals), score_failed=score_failed),
        score_rollouts(after, (each for _, each in copies), score_failed=score_failed),
        top=top,
    )
    scorers = scorer_of(before), scorer_of(after)
    comparison.before.rubrics, comparison.after.rubrics = (each.rubrics for each in scorers)
    return ComparisonReport(
        comparison,
        changes,
        scorers[0].fingerprint,
        scorers[1].fingerprint,
        seconds=perf_counter() - start,
    )


# Files -------------------------------------------------------------------------------------------


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
        format: The format of the rollouts: ``jsonl``, ``tau-bench``, ``parquet``,
            ``openenv-trace`` or ``atif``; by default that of the file's suffix.
        ground_truth: The column that has the ground truth; None is ``ground_truth``.
        score_failed: Whether to score episodes that ended with an error.
        at: The position of the schedules of reward files: the episode and the training step.
        services: A file of services by name, as under ``mcp_services``, in place of those of the
            rewards.
        out: The file for a line of JSON per rollout: ``id``, ``group``, and the result rows
            ``before`` and ``after`` without these; ``-`` is standard output, None writes nothing.
        trees: Whether the rows of rubrics have ``trees``: the score of every rubric at each step.
        keep_going: Whether to score on when 10 rows in a row have failed because a service is
            unavailable or too slow. By default the run ends there, without these rows.
    """

    before: str
    after: str
    rollouts: str
    by: str | None = None
    top: int = 10
    format: str | None = None
    ground_truth: str | None = None
    score_failed: bool = False
    at: int | None = None
    services: str | None = None
    out: str | None = None
    trees: bool = False
    keep_going: bool = False

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
        outage = Outage[_Pair](ignored=self.keep_going)
        refuse_overwriting(self.out, self.rollouts, self.before, self.after)
        if self.at is not None and not any(map(is_pipeline_file, (self.before, self.after))):
            raise InvalidArgumentError(
                f"--at requires a reward file with schedules; neither {self.before} nor "
                f"{self.after} is one"
            )
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(RowWriter(self.out))
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
            comparison.before.rubrics = before.scorer.rubrics
            comparison.after.rubrics = after.scorer.rubrics

            def add(pair: _Pair) -> None:
                comparison.add(*pair)
                writer.write(_encoded_pair(*pair[:2]))

            start = perf_counter()
            interrupted = _compare(batches, before, after, add, outage, progress)
            seconds = perf_counter() - start
        if not comparison.rows and not interrupted:
            raise RolloutError(f"{name_of_file(self.rollouts)} has no rollouts: it is empty")
        return ComparisonReport(
            comparison,
            tuple(changes),
            before.scorer.fingerprint,
            after.scorer.fingerprint,
            seconds,
            interrupted,
            outage.stops,
        )

    def _pipeline(self, reward: str) -> ScoringPipeline:
        at = self.at if is_pipeline_file(reward) else None
        job = ScoringJob(
            self.rollouts, reward, by=self.by, score_failed=self.score_failed, at=at,
            services=self.services, trees=self.trees, ground_truth=self.ground_truth,
        )  # fmt: skip
        return ScoringPipeline(job)

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


# The rows of a rollout from both rewards, and the part of a breakdown that it belongs to.
_Pair: TypeAlias = "tuple[ResultRow, ResultRow, str | None]"


def _compare(
    batches: Iterator[list[Line]],
    before: ScoringPipeline,
    after: ScoringPipeline,
    add: Callable[[_Pair], None],
    outage: Outage[_Pair],
    progress: Callable[[int, int], None] | None,
) -> bool:
    """Score all batches with both rewards; returns whether it ended before the last."""
    read = rows = 0
    with Interrupts() as interrupts:
        try:
            for lines, one, other in _scored_by_both(batches, before, after, interrupts):
                for (row, part), (row_after, _) in zip(one, other, strict=True):
                    failure = service_failure(row) or service_failure(row_after)
                    for pair in outage.add((row, row_after, part), failure):
                        add(pair)
                    rows += 1
                read += sum(len(line) for _, line in lines)
                if progress is not None:
                    progress(rows, read)
                if outage.stops is not None:
                    return True
            for pair in outage.end():
                add(pair)
        except KeyboardInterrupt:
            return True
        return interrupts.requested


def _scored_by_both(
    batches: Iterator[list[Line]],
    before: ScoringPipeline,
    after: ScoringPipeline,
    interrupts: Interrupts,
) -> Iterator[tuple[list[Line], list[ScoredRow], list[ScoredRow]]]:
    """Yield batches with their rows, in order; after ctrl-C, those that are finished."""
    ahead = max(each.ahead if each.scorer.is_concurrent else 1 for each in (before, after))
    pending: deque[tuple[list[Line], Future[list[ScoredRow]], Future[list[ScoredRow]]]] = deque()
    has_more = True
    while not interrupts.requested and (has_more or pending):
        with interrupts.allowed():
            while has_more and len(pending) < ahead:
                lines = next(batches, None)
                has_more = lines is not None
                if lines is not None:
                    pending.append((lines, before.start(lines), after.start(lines)))
            if pending:
                lines, one, other = pending[0]
                found = lines, one.result(), other.result()
        if pending and not interrupts.requested:
            pending.popleft()
            yield found
    for lines, one, other in pending:
        if not (one.done() and other.done()):
            return
        yield lines, one.result(), other.result()


def _encoded_pair(before: ResultRow, after: ResultRow) -> bytes:
    shared = {"id": before["id"], "group": before["group"]}
    pair = {"before": before, "after": after}
    sides = {
        when: {name: value for name, value in row.items() if name not in shared}
        for when, row in pair.items()
    }
    return encode_row(shared | sides)


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
