"""What is logged: one record each, as it flows from the training loop to the trackers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from guerdon.tracking.metric_names import metric_name

__all__ = ["TrackedRecord"]

Kind: TypeAlias = Literal["step", "weights", "config"]


@dataclass(frozen=True, slots=True)
class TrackedRecord:
    """One thing that was logged.

    Example:
        >>> from guerdon.tracking import TrackedRecord
        >>> record = TrackedRecord(id="a-1", kind="step", time=0.0, step=7, reward=None,
        ...                        components={"tests": 1.0}, invalid={"style": "TimeoutError"})
        >>> record.metrics()
        {'reward/invalid/total': 1.0, 'reward/tests': 1.0, 'reward/invalid/style': 1.0}

    Attributes:
        id: Its own, over all processes; one that is sent again keeps it.
        kind: ``"step"``, ``"weights"`` or ``"config"``.
        time: When it was logged, seconds since 1970.
        step: The training or environment step.
        episode: The episode; None where it wasn't told.
        env_id: The environment; None where it wasn't told.
        reward: The total; None where there is none, as it is invalid.
        reward_error: Why there is no total, as far as it was told.
        components: The parts that are valid, by name.
        invalid: The parts that failed, by name, with why.
        weights: Weights by name.
        change: Of a change of the configuration: ``what``, ``from``, ``to``, ``who``, ``when``,
            ``fingerprint``, ``version`` where it was told, and the ``number`` of the update in this
            logger, from 1, which all that it changed have in common.
        line: The line of JSON that says all this, with its end.
    """

    id: str
    kind: Kind
    time: float
    step: int
    episode: int | str | None = None
    env_id: int | str | None = None
    reward: float | None = None
    reward_error: str | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    invalid: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    change: Mapping[str, Any] = field(default_factory=dict)
    line: bytes = field(default=b"", repr=False, compare=False)

    def metrics(self) -> dict[str, float]:
        """Its numbers under the names that trackers show, without the environment.

        They are ``reward/total``, ``reward/{name}``, ``reward/weights/{name}``,
        ``reward/invalid/{name}`` (1 where something failed; ``reward/invalid/total`` is the reward
        itself) and ``config/updates``. A name that some tracker doesn't take is written as
        `metric_name` writes it.
        """
        found: dict[str, float] = {}
        if self.reward is not None:
            found["reward/total"] = self.reward
        elif self.kind == "step":
            found["reward/invalid/total"] = 1.0
        for name, value in self.components.items():
            found[f"reward/{metric_name(name)}"] = value
        for name in self.invalid:
            found[f"reward/invalid/{metric_name(name)}"] = 1.0
        for name, value in self.weights.items():
            found[f"reward/weights/{metric_name(name)}"] = value
        if self.change:
            found["config/updates"] = float(self.change["number"])
        return found


def after(records: Sequence[TrackedRecord], record_id: str | None) -> Sequence[TrackedRecord]:
    """The records behind one of them; all, where it isn't among them."""
    ids = [record.id for record in records]
    return records[ids.index(record_id) + 1 :] if record_id in ids else records


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def line_of(row: dict[str, Any]) -> bytes:
    """The fields of a record as a line of JSON, with its end."""
    return _encode(row).encode("ascii") + b"\n"


def record_of(line: bytes) -> TrackedRecord:
    """Read a line again.

    Raises:
        ValueError: It is no such line.
    """
    row = json.loads(line)
    try:
        return TrackedRecord(**row, line=line)
    except TypeError as error:
        raise ValueError(f"no record: {line[:80]!r}") from error
