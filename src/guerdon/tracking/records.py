"""Records of rewards: what is logged, as rows of JSON and as metrics."""

from __future__ import annotations

import json
import math
import operator
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from numbers import Real
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field, StrictStr, ValidationError

from guerdon._problems import problems_of
from guerdon._validation import is_finite, shown
from guerdon.errors import InvalidArgumentError

__all__ = ["TrackedRecord", "metric_name", "reward_fields"]

Kind: TypeAlias = Literal["step", "weights", "config"]

#: The accepted types of an episode and of an environment's id.
IDS = frozenset({int, str, type(None)})
LAST_STEP = 2**63 - 1  # every tracker accepts this

#: The default of an argument that may also be None.
NOT_GIVEN: Any = object()


@dataclass(frozen=True, slots=True)
class TrackedRecord:
    """One logged event: a step, weights, or a change of the configuration.

    Example:
        >>> from guerdon.tracking import TrackedRecord
        >>> record = TrackedRecord(id="a-1", kind="step", time=0.0, step=7, reward=None,
        ...                        components={"tests": 1.0}, invalid={"style": "TimeoutError"})
        >>> record.metrics()
        {'reward/invalid/total': 1.0, 'reward/tests': 1.0, 'reward/invalid/style': 1.0}

    Attributes:
        id: Unique across processes; a record that is sent again keeps it.
        kind: ``"step"``, ``"weights"`` or ``"config"``.
        time: When it was logged, in seconds since 1970.
        step: The training or environment step.
        episode: The episode, if given.
        env_id: The environment, if given.
        reward: The total; None if it is invalid.
        reward_error: Why there is no total, if known.
        components: The valid components by name.
        invalid: The failed components by name, with the reason.
        weights: Weights by name: of a step, those that its reward was computed with.
        change: A change of the configuration: ``what``, ``from``, ``to``, ``who``, ``when``,
            ``fingerprint``, ``version`` if known, and the ``number`` of the update in this logger,
            from 1, which all changes of one update share.
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

    def metrics(self) -> dict[str, float]:
        """Return the numbers under the names that trackers show, without the environment.

        The names are ``reward/total``, ``reward/{name}``, ``reward/weights/{name}``,
        ``reward/invalid/{name}`` (1 for a failed component; ``reward/invalid/total`` is the reward
        itself) and ``config/updates``, each name as `metric_name` writes it.
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


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def line_of(row: dict[str, Any]) -> bytes:
    """Return a record's fields and its metrics as one line of JSON."""
    metrics = TrackedRecord(**row).metrics()
    return _encode({**row, "metrics": metrics}).encode("ascii") + b"\n"


def record_of(line: bytes) -> TrackedRecord:
    """Return the record of a line.

    Raises:
        ValueError: The line isn't a record.
    """
    try:
        row = json.loads(line)
        row.pop("metrics", None)
        return TrackedRecord(**row)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a record: {line[:80]!r}") from error


def after(records: Sequence[TrackedRecord], record_id: str | None) -> Sequence[TrackedRecord]:
    """Return the records after the one with an id; all of them if none has it."""
    ids = [record.id for record in records]
    return records[ids.index(record_id) + 1 :] if record_id in ids else records


# Names of metrics ---------------------------------------------------------------------------------

# What every tracker accepts in one part of a name; a slash starts the next part.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HASHED = re.compile(r".*-[0-9a-f]{8}", re.DOTALL)
# Reserved parts: reward/total, reward/weights/…, reward/invalid/….
_RESERVED = frozenset({"total", "weights", "invalid"})
_LONGEST = 80  # MLflow accepts 250 characters for all parts together


@lru_cache(maxsize=4096)
def metric_name(name: str) -> str:
    """Return a name as one part of a metric's name that every tracker accepts.

    Trackers accept different characters (MLflow is the strictest), and two names that are changed
    differently could collide. A name that contains other characters than letters, digits, ``_``,
    ``.`` and ``-``, is longer than 80 characters, or is reserved (``total``, ``weights``,
    ``invalid``) is written with ``_`` in place of other characters and 8 digits of its SHA-256. A
    name that already ends like that is treated in the same way.

    Example:
        >>> metric_name("style.brevity")
        'style.brevity'
        >>> metric_name("style/brevity"), metric_name("style brevity")
        ('style_brevity-7a964932', 'style_brevity-bc42d04b')

    Args:
        name: Any text, such as the name of a component or of an environment.
    """
    fits = _PLAIN.fullmatch(name) is not None and len(name) <= _LONGEST
    if fits and name not in _RESERVED and _HASHED.fullmatch(name) is None:
        return name
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[: _LONGEST - 9]
    stem = stem if stem[:1].isalnum() else f"_{stem}"[: _LONGEST - 9]
    return f"{stem}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


# From arguments to rows ---------------------------------------------------------------------------


def reward_fields(observation: Any) -> dict[str, Any]:
    """Return the reward of an observation as arguments of `RewardLogger.log_step`.

    A failed rubric is reported as ``reward/invalid/{name}``, and the weights of a `RubricComposer`
    as ``reward/weights/{name}``.

    Example:
        >>> from guerdon import Observation
        >>> from guerdon.tracking import reward_fields
        >>> observation = Observation(reward=None, metadata={
        ...     "reward_components": {"brief": 1.0},
        ...     "reward_error": "OSError: the judge is down",
        ...     "reward_failed": "style",
        ... })
        >>> reward_fields(observation)["invalid"]
        {'style': 'OSError: the judge is down'}
        >>> def train(logger, step, episode, observation):
        ...     logger.log_step(step, episode, **reward_fields(observation))

    Args:
        observation: An observation, or the result of a client's step, which has the same fields.

    Returns:
        ``reward``, ``components``, ``weights``, ``invalid`` and ``reward_error``.

    Raises:
        InvalidArgumentError: It has no ``reward`` and ``metadata``.
    """
    metadata = getattr(observation, "metadata", None)
    if not hasattr(observation, "reward") or not isinstance(metadata, Mapping | None):
        raise InvalidArgumentError(
            "`observation` must be an observation or the result of a client's step, got "
            f"{shown(observation)}"
        )
    metadata = metadata or {}
    error, failed = metadata.get("reward_error"), metadata.get("reward_failed")
    weights = metadata.get("reward_weights") or {}
    return {
        "reward": observation.reward,
        "components": dict(metadata.get("reward_components") or {}),
        # None is a weight that no float can represent.
        "weights": {name: weight for name, weight in weights.items() if weight is not None},
        "invalid": {str(failed): str(error)} if error is not None and failed else None,
        "reward_error": None if error is None else str(error),
    }


def checked_step(step: Any) -> int:
    """Return a step as an int; integers of numpy are accepted too.

    Raises:
        InvalidArgumentError: It isn't an integer from 0 to 2**63 - 1.
    """
    number = _integer(step)
    if number is None or not 0 <= number <= LAST_STEP:
        raise InvalidArgumentError(f"`step` must be an integer in [0, 2**63), got {shown(step)}")
    return number


def checked_id(name: str, value: Any) -> int | str | None:
    """Return an episode or an environment's id.

    Raises:
        InvalidArgumentError: It isn't a string, an integer or None.
    """
    if value is None or isinstance(value, str):
        return value if value is None else str(value)
    number = _integer(value)
    if number is None:
        raise InvalidArgumentError(
            f"`{name}` must be a string, an integer or None, got {shown(value)}"
        )
    return number


def checked_scores(
    reward: Any, components: Any, *, invalid: Any, reward_error: str | None
) -> dict[str, Any]:
    """Return a reward and its components as fields of a record.

    Raises:
        InvalidArgumentError: A value is neither a number nor None, or a name isn't a string.
    """
    invalid = {} if invalid is None else invalid
    for name, value in (("components", components), ("invalid", invalid)):
        if not isinstance(value, dict | Mapping):
            raise InvalidArgumentError(f"`{name}` must be a mapping, got {shown(value)}")
    reasons = {_text("invalid", name): str(reason) for name, reason in invalid.items()}
    valid: dict[str, float] = {}
    for name, value in components.items():
        number, reason = _number(value, f"components[{shown(name)}]")
        name = _text("components", name)
        if number is None:
            reasons.setdefault(name, reason)
        elif name not in reasons:  # a component that is reported as failed has no number
            valid[name] = number
    number, reason = _number(reward, "reward")
    fields: dict[str, Any] = {"reward": number, "components": valid}
    if number is None:
        fields["reward_error"] = reason if reward_error is None else str(reward_error)
    return fields | ({"invalid": reasons} if reasons else {})


def checked_weights(weights: Any) -> dict[str, float]:
    """Return weights by name.

    Raises:
        InvalidArgumentError: A weight isn't a finite number, or a name isn't a string.
    """
    if not isinstance(weights, Mapping):
        raise InvalidArgumentError(f"`weights` must be a mapping, got {shown(weights)}")
    found: dict[str, float] = {}
    for name, weight in weights.items():
        place = f"weights[{shown(name)}]"
        number, _ = _number(weight, place)
        if number is None:
            raise InvalidArgumentError(f"`{place}` must be a finite number, got {shown(weight)}")
        found[_text("weights", name)] = number
    return found


class _Change(BaseModel):
    what: StrictStr
    before: Any = Field(alias="from")
    after: Any = Field(alias="to")


class _Update(BaseModel):
    """What `RewardRuntime.update` returns under ``"change"``."""

    changes: list[_Change]
    by: Any = None
    when: Any = None
    version: Any = None


def config_rows(
    what: Any, *, before: Any, after: Any, who: Any, when: Any, fingerprint: str | None
) -> list[dict[str, Any]]:
    """Return the fields ``change`` and ``weights`` of each change of an update.

    Raises:
        InvalidArgumentError: An argument is missing, or invalid.
    """
    if isinstance(what, str):
        if before is NOT_GIVEN or after is NOT_GIVEN:
            raise InvalidArgumentError(f"`before` and `after` of {shown(what)} are required")
        changes = [{"what": what, "from": before, "to": after}]
        what = {"by": who, "when": when, "changes": changes}
    elif before is not NOT_GIVEN or after is not NOT_GIVEN or not (who is when is None):
        raise InvalidArgumentError(
            "`before`, `after`, `who` and `when` require `what` to be a string, such as "
            "'style.weight'; an update includes them itself"
        )
    if what is None:
        return []
    try:
        update = _Update.model_validate(what)
    except ValidationError as error:
        raise InvalidArgumentError(
            '`what` must be a string, or what an update returns under "change": '
            f"{'; '.join(map(str, problems_of(error, what)))}"
        ) from error
    when = time.time() if update.when is None else update.when
    common = {"who": update.by, "when": when, "fingerprint": fingerprint}
    if update.version is not None:
        common["version"] = update.version
    return [_config_row(each, common) for each in update.changes]


def _config_row(change: _Change, common: Mapping[str, Any]) -> dict[str, Any]:
    front, _, attribute = change.what.rpartition(".")
    name = front.rpartition(".")[2]
    is_weight = attribute == "weight" and name and is_finite(change.after)
    values = {"what": change.what, "from": change.before, "to": change.after, **common}
    return {
        "change": {key: _as_json(value) for key, value in values.items()},
        "weights": {name: float(change.after)} if is_weight else {},
    }


def _as_json(value: Any) -> Any:
    """Return a value that JSON can represent: itself, or its repr."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return shown(value)


def _integer(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _text(where: str, name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"names in `{where}` must be strings, got {shown(name)}")
    return str(name)


def _number(value: Any, place: str) -> tuple[float | None, str]:
    """Return a finite number; or None, and why there is none."""
    if value is None:
        return None, "failed"
    # The most frequent types come first: the abstract class is slow to check.
    if isinstance(value, bool) or not isinstance(value, (float, int, Real)):
        raise InvalidArgumentError(
            f"`{place}` must be a number, or None if it failed, got {shown(value)} of type "
            f"{type(value).__name__}"
        )
    try:
        number = float(value)
    except OverflowError:
        return None, "a number that a float can't represent"
    return (number, "") if math.isfinite(number) else (None, str(number))
