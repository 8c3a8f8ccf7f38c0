"""What a server reports about itself: log lines, and metrics for Prometheus."""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.core import HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from guerdon._logging import plain, step_logger
from guerdon._validation import as_score
from guerdon.envs.environment import COMPONENTS
from guerdon.types.observation import Observation

logger = step_logger("guerdon.server")

MetricT = TypeVar("MetricT", bound=MetricWrapperBase)


def log(
    event: str, *, level: str = "info", trace: BaseException | None = None, **fields: Any
) -> None:
    """Log an event with its fields.

    Args:
        event: What happened.
        level: ``debug``, ``info``, ``warning`` or ``error``.
        trace: An exception whose traceback is logged.
        **fields: Further values, by name.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    if logger.isEnabledFor(number):
        logger.log(number, event, exc_info=trace, extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """Formats a log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            **getattr(record, "fields", {}),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = record.exc_text or self.formatException(record.exc_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except ValueError:  # NaN or infinity
            return json.dumps({name: str(value) for name, value in line.items()})


class TextFormatter(logging.Formatter):
    """Formats a log record as a line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback below it."""
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = getattr(record, "fields", {})
        values = "".join(f"  {name}={plain(str(value))}" for name, value in fields.items())
        text = f"{time} {record.levelname.lower():7} {record.getMessage()}{values}"
        if record.exc_info:
            trace = record.exc_text or self.formatException(record.exc_info)
            lines = trace.splitlines()
            text += "".join(f"\n  | {plain(line)}" for line in lines)
        return text


BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

# Environments name their rubrics: more names than these are counted together.
MAX_COMPONENTS = 200
OTHERS = "(others)"


class Metrics:
    """What a server counts, in a registry of its own.

    Attributes:
        sessions: Open sessions.
        hanging: Environments that hang in calls that exceeded their time limit.
        opened: Sessions that were opened.
        closed: Sessions that ended, by reason.
        refused: Connections and requests that were refused, by reason.
        calls: Calls of environments, by method.
        failures: Failures, by kind.
    """

    def __init__(self) -> None:
        self._registry = registry = _Registry(auto_describe=False)

        def made(kind: type[MetricT], name: str, text: str, *labels: str, **more: Any) -> MetricT:
            return kind(f"guerdon_{name}", text, labels, registry=registry, **more)

        self.sessions = made(Gauge, "sessions", "Open sessions.")
        hanging = "Environments that hang in calls that exceeded their time limit."
        self.hanging = made(Gauge, "hanging_environments", hanging)
        self.opened = made(Counter, "sessions_opened", "Sessions that were opened.")
        self.closed = made(Counter, "sessions_closed", "Sessions that ended.", "reason")
        refused = "Connections and requests that were refused."
        self.refused = made(Counter, "refused", refused, "reason")
        self.calls = made(Counter, "calls", "Calls of environments.", "method")
        self.failures = made(Counter, "failures", "Failures.", "kind")
        self._steps = _Steps()
        registry.register(self._steps)

    def observe_step(self, seconds: float, observation: Observation | None) -> None:
        """Count a step, and the scores of its observation; None if it failed."""
        self._steps.add(seconds)
        if observation is None:
            return
        self._steps.add_score("", observation.reward)
        components = observation.metadata.get(COMPONENTS)
        if isinstance(components, dict):
            for name, score in components.items():
                self._steps.add_score(name, score)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        if steps := self._steps.uncounted():
            self.calls.labels("step").inc(steps)
        return generate_latest(self._registry)


class _Steps(Collector):
    """The durations and the scores of steps.

    They are added in one event loop, without the locks of prometheus_client, which take a tenth of
    the time of a step in a batch.
    """

    def __init__(self) -> None:
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self._counted = 0
        self._scores: dict[str, list[float]] = {}  # number and sum, by component

    def add(self, seconds: float) -> None:
        """Add the duration of a step."""
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def add_score(self, name: Any, score: Any) -> None:
        """Add the score of a component, unless it is no number or its name can't be printed."""
        # A finite float, as usual, without a call.
        usual = score.__class__ is float and score - score == 0.0
        value = score if usual else as_score(score)
        if value is None:
            return
        found = self._scores.get(name)
        if found is None:
            if not isinstance(name, str) or not name.isprintable():
                return
            if len(self._scores) >= MAX_COMPONENTS:
                name = OTHERS
            found = self._scores.setdefault(name, [0.0, 0.0])
        found[0] += 1.0
        found[1] += value

    def uncounted(self) -> int:
        """Return how many steps there were since the last call."""
        before, self._counted = self._counted, sum(self._buckets)
        return self._counted - before

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        totals = accumulate(self._buckets)
        buckets = zip([*map(str, BUCKETS), "+Inf"], totals, strict=True)
        seconds = self._seconds
        name = "guerdon_step_seconds"
        yield HistogramMetricFamily(name, "The duration of steps.", [*buckets], seconds)
        text = "Scores, by component; an empty one is the reward."
        scores = SummaryMetricFamily("guerdon_reward", text, labels=["component"])
        for component, (count, total) in self._scores.items():
            scores.add_metric([component], int(count), total)
        yield scores


class _Registry(CollectorRegistry):
    """Leaves out the time at which each series was created."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric
