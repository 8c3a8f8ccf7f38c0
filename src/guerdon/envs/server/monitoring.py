"""What a server reports about itself: log lines, and metrics for Prometheus."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    Summary,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

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
        step_seconds: The duration of steps.
        rewards: Scores, by component; ``""`` is the reward itself.
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
        durations = "The duration of steps."
        self.step_seconds = made(Histogram, "step_seconds", durations, buckets=BUCKETS)
        scores = "Scores, by component; an empty one is the reward."
        self.rewards = made(Summary, "reward", scores, "component")
        self._components: dict[str, Summary] = {}
        self._steps: Counter | None = None

    def observe_step(self, seconds: float, observation: Observation | None) -> None:
        """Count a step, and the scores of its observation; None if it failed."""
        if self._steps is None:
            self._steps = self.calls.labels("step")
        self._steps.inc()
        self.step_seconds.observe(seconds)
        if observation is None:
            return
        scores: dict[Any, Any] = {} if observation.reward is None else {"": observation.reward}
        components = observation.metadata.get(COMPONENTS)
        if isinstance(components, dict):
            scores.update(components)
        for name, score in scores.items():
            # A finite float, as usual, without a call.
            usual = score.__class__ is float and score - score == 0.0
            value = score if usual else as_score(score)
            if value is not None and isinstance(name, str) and name.isprintable():
                (self._components.get(name) or self._component(name)).observe(value)

    def _component(self, name: str) -> Summary:
        if len(self._components) >= MAX_COMPONENTS:
            name = OTHERS
        return self._components.setdefault(name, self.rewards.labels(name))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)


class _Registry(CollectorRegistry):
    """Leaves out the time at which each series was created."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric
