"""`Metrics`: what a server has done, counted as it goes and told in Prometheus' format.

Counting is a few additions in the event loop; everything else happens where somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

__all__ = ["Metrics"]

BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

# Environments name their rubrics; what they could make up without end is bounded.
MAX_COMPONENTS = 200
OTHERS = "(others)"


@dataclass(slots=True, eq=False)
class Metrics:
    """What a server has done since it started.

    Attributes:
        active: Sessions that are open now.
        opened: Sessions that were opened.
        closed: Sessions that ended, by reason.
        refused: Connections that were refused, by reason.
        calls: Calls of an environment, by method.
        failures: What went wrong, by kind.
        rewards: Sums and counts of scores, by component; ``""`` is the reward itself.
    """

    active: int = 0
    opened: int = 0
    closed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    rewards: dict[str, list[float]] = field(default_factory=dict)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def count(self, what: dict[str, int], name: str) -> None:
        """Count one of `what`."""
        what[name] = what.get(name, 0) + 1

    def step(self, seconds: float, reward: float | None, components: dict[str, float]) -> None:
        """Count a step that an environment has taken."""
        self.calls["step"] = self.calls.get("step", 0) + 1
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        if reward is not None:
            self._add("", reward)
        for name, value in components.items():
            self._add(name, value)

    def _add(self, name: str, value: float) -> None:
        rewards = self.rewards
        found = rewards.get(name)
        if found is None:
            if len(rewards) >= MAX_COMPONENTS:
                name = OTHERS
            found = rewards.setdefault(name, [0.0, 0.0])
        found[0] += 1
        found[1] += value

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Everything, as ``prometheus_client`` takes it."""
        yield GaugeMetricFamily("guerdon_sessions", "Sessions that are open.", value=self.active)
        yield CounterMetricFamily(
            "guerdon_sessions_opened", "Sessions that were opened.", value=self.opened
        )
        for name, text, label, counts in (
            ("sessions_closed", "Sessions that ended.", "reason", self.closed),
            ("refused", "Connections and requests that were refused.", "reason", self.refused),
            ("calls", "Calls of environments.", "method", self.calls),
            ("failures", "What went wrong.", "kind", self.failures),
        ):
            family = CounterMetricFamily(f"guerdon_{name}", text, labels=[label])
            for value, count in sorted(counts.items()):
                family.add_metric([value], count)
            yield family
        yield self._step_seconds()
        rewards = SummaryMetricFamily(
            "guerdon_reward",
            "Scores, by component; an empty one is the reward.",
            labels=["component"],
        )
        for name, (scores, total) in self.rewards.items():
            rewards.add_metric([name], int(scores), total)
        yield rewards

    def _step_seconds(self) -> HistogramMetricFamily:
        so_far = 0
        cumulative: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.buckets, strict=True):
            so_far += count
            cumulative.append((bound, float(so_far)))
        return HistogramMetricFamily(
            "guerdon_step_seconds",
            "How long environments took for a step.",
            buckets=cumulative,
            sum_value=self.seconds,
        )
