"""What the columns of each kind of file are: result rows, comparisons, logs, arenas, rollouts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from math import inf, nan
from statistics import median_low
from typing import Any, TypeAlias

from guerdon._validation import as_score
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rollouts.scoring.summary import kind_of_failure
from guerdon.viewer.columns import EMPTY, Batch

# Columns that aren't in a row under their names.
OWN_COLUMNS = frozenset(
    (
        "id",
        "error",
        "score",
        "turns",
        "tool_calls",
        "characters",
        "status",
        "group",
        "failure",
        "stopped_by",
    )
)

Row: TypeAlias = "dict[str, Any]"

# The name of the whole reward, as in the tables of ``guerdon score``.
ROOT = "the reward itself"

# Characters of a value of a category; the digest of a longer one distinguishes it from others.
MAX_VALUE = 200

RESULT_KEYS = ResultRow.__required_keys__ | ResultRow.__optional_keys__
# The key that every row of a kind has.
REQUIRED = {"rows": "score", "diff": "before", "log": "step", "arena": "world", "rollouts": None}
# Keys of a rollout that are not columns of its task.
ROLLOUT_KEYS = frozenset(("id", "group", "messages"))


def kind_of(row: Row) -> str | None:
    """The kind of a file with such a row; None if it is of another format.

    Example:
        >>> kind_of({"id": 1, "score": 0.5, "components": {}}), kind_of({"x": 1})
        ('rows', None)
    """
    if is_header(row):
        return "arena"
    if isinstance(row.get("before"), dict) and isinstance(row.get("after"), dict):
        return "diff"
    if row.get("kind") in ("step", "weights", "config") and "step" in row:
        return "log"
    if "score" in row and "components" in row:
        return "rows"
    return "rollouts" if "messages" in row else None


def is_header(row: Row) -> bool:
    """Whether it is the first line of a file of the arena, which has no results."""
    return "arena" in row and "protocol" in row


def reduction_of(kind: str) -> Callable[[Row], Row]:
    """A function that removes from a row what `batch_of` doesn't need, so that it is freed."""
    return _reduced_rollout if kind == "rollouts" else lambda row: row


def batch_of(kind: str, rows: Sequence[Row]) -> Batch:
    """What rows add to the columns of a file.

    Args:
        kind: As `kind_of` returns it.
        rows: The rows, reduced by `reduction_of`; an empty one is a line that can't be
            read. Anything may be missing, or be of another type.
    """
    return _BATCHES[kind](rows)


def text_of(value: Any) -> str | None:
    """A value of JSON as the text of an id; None if it is absent.

    Example:
        >>> text_of("q7"), text_of(7), text_of(True), text_of(["q", 7]), text_of(None)
        ('q7', '7', 'True', '["q", 7]', None)
    """
    if value is None or type(value) is str:
        return value
    return str(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def label_of(value: Any) -> str | None:
    """A value of JSON as the text of a category, which is short."""
    text = text_of(value)
    if text is None or len(text) <= MAX_VALUE:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{text[:MAX_VALUE]}… {digest}"


# Rows --------------------------------------------------------------------------------------------


def _results(rows: Sequence[Row]) -> Batch:
    scores = [row.get("score") for row in rows]
    scored = [_is_scored(row) for row in rows]
    errors = [text_of(row.get("error")) for row in rows]
    batch = Batch(
        len(rows),
        {"score": scores if all(scored) else _where(scored, scores)},
        {
            "status": ["scored" if each else "failed" for each in scored],
            "group": [label_of(row.get("group")) for row in rows],
        },
        {"id": [text_of(row.get("id")) for row in rows], "error": errors},
        # The components of a failed row are those up to the failure: no mean contains them.
        {"components.": [_mapping(row, "components") if each else EMPTY
                         for each, row in zip(scored, rows, strict=True)]},
    )  # fmt: skip
    turns = [len(each) if type(each := row.get("step_rewards")) is list else None for row in rows]
    if any(turns):
        batch.numbers["turns"] = turns
    if not all(scored):
        batch.categories["failure"] = [
            None if each else kind_of_failure(error or "")
            for each, error in zip(scored, errors, strict=True)
        ]
    if any("stopped_by" in row for row in rows):
        batch.categories["stopped_by"] = [_gates(row) for row in rows]
    if any("steps" in row for row in rows):
        _add_advantages(batch, rows)
    _add_columns(batch, rows, RESULT_KEYS)
    return batch


def _is_scored(row: Row) -> bool:
    return as_score(row.get("score")) is not None and row.get("is_score_valid") is not False


def _where(chosen: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [value if each else nan for each, value in zip(chosen, values, strict=True)]


def _mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if type(value) is dict else EMPTY


def _list(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    return value if type(value) is list else []


def _gates(row: Row) -> str | None:
    """The gates that stopped a row, with commas between them."""
    gates = _list(row, "stopped_by")
    return label_of(", ".join(text_of(gate) or ROOT for gate in gates)) if gates else None


def _add_advantages(batch: Batch, rows: Sequence[Row]) -> None:
    """Add the least, the mean and the greatest of the advantages of each row's steps."""
    found = [
        [
            value
            for step in _list(row, "steps")
            if type(step) is dict and (value := as_score(step.get("advantage"))) is not None
        ]
        for row in rows
    ]
    batch.numbers["advantage.min"] = [min(each, default=nan) for each in found]
    batch.numbers["advantage.mean"] = [sum(each) / len(each) if each else nan for each in found]
    batch.numbers["advantage.max"] = [max(each, default=nan) for each in found]


def _add_columns(batch: Batch, rows: Sequence[Row], known: frozenset[str]) -> None:
    """Add the other columns: numbers if some have a fraction, else short values as categories."""
    for key in set().union(*rows) - known:
        values = [row.get(key) for row in rows]
        name = f"task.{key}" if key in OWN_COLUMNS else key
        if float in map(type, values):
            batch.numbers[name] = values
        labels = [_short(value) for value in values]
        if any(label is not None for label in labels):
            batch.categories[name] = labels


def _short(value: Any) -> str | None:
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE else None
    return str(value) if isinstance(value, int) else None  # a bool is an int


# The others --------------------------------------------------------------------------------------

STATUS = {
    (True, True): "both",
    (True, False): "lost",
    (False, True): "won",
    (False, False): "failed",
}


def _comparisons(rows: Sequence[Row]) -> Batch:
    before, after = ([_mapping(row, side) for row in rows] for side in ("before", "after"))
    pairs = [
        (as_score(one.get("score")), as_score(other.get("score")))
        for one, other in zip(before, after, strict=True)
    ]
    return Batch(
        len(rows),
        {
            "before": [one for one, _ in pairs],
            "after": [other for _, other in pairs],
            "difference": [None if None in pair else pair[1] - pair[0] for pair in pairs],  # type: ignore[operator]
        },
        {
            "status": [STATUS[one is not None, other is not None] for one, other in pairs],
            "group": [label_of(row.get("group")) for row in rows],
        },
        {
            "id": [text_of(row.get("id")) for row in rows],
            "error": [
                text_of(one.get("error") or other.get("error"))
                for one, other in zip(before, after, strict=True)
            ],
        },
        {f"{side}.": [_mapping(each, "components") if each.get("score") is not None else EMPTY
                      for each in sides]
         for side, sides in (("before", before), ("after", after))},
    )  # fmt: skip


def _records(rows: Sequence[Row]) -> Batch:
    spread = {f"{name}.": [_mapping(row, name) for row in rows] for name in PARTS_OF_RECORD}
    spread["invalid."] = [
        dict.fromkeys([*each, ROOT] if _lacks_reward(row) else each, 1.0)
        for each, row in zip(spread["invalid."], rows, strict=True)
    ]
    return Batch(
        len(rows),
        {name: [row.get(name) for row in rows] for name in ("step", "reward", "time")},
        {name: [label_of(row.get(name)) for row in rows] for name in ("kind", "env_id", "episode")},
        {
            "id": [text_of(row.get("id")) for row in rows],
            "error": [text_of(row.get("reward_error")) for row in rows],
        },
        spread,
    )


def _lacks_reward(row: Row) -> bool:
    return row.get("kind") == "step" and as_score(row.get("reward")) is None


PARTS_OF_RECORD = ("components", "weights", "invalid")

# Numbers of a result of the arena, and lists of numbers with one for each seed.
OF_METHOD = ("learning_rate", "uniform", "optimum", "coverage", "seconds")
OF_SEEDS = ("area", "final", "updates", "steps")


def _methods(rows: Sequence[Row]) -> Batch:
    numbers = {name: [row.get(name) for row in rows] for name in OF_METHOD}
    numbers |= {name: [_median(_list(row, name)) for row in rows] for name in OF_SEEDS}
    categories = {name: [label_of(row.get(name)) for row in rows] for name in ("world", "method")}
    errors = {"error": [text_of(row.get("error")) for row in rows]}
    return Batch(len(rows), numbers, categories, errors)


def _median(values: list[Any]) -> float:
    """As in the arena's table: the lower median, where a target that wasn't reached is ∞."""
    known = (as_score(value) for value in values)
    return median_low(inf if each is None else each for each in known) if values else nan


def _rollouts(rows: Sequence[Row]) -> Batch:
    counts = [row["messages"] if row else (nan, nan, nan) for row in rows]
    numbers: dict[str, list[Any]] = dict(
        zip(
            ("turns", "tool_calls", "characters"), map(list, zip(*counts, strict=True)), strict=True
        )
    )
    batch = Batch(len(rows), numbers, texts={"id": [text_of(row.get("id")) for row in rows]})
    _add_columns(batch, rows, ROLLOUT_KEYS)
    return batch


def _reduced_rollout(row: Row) -> Row:
    """A rollout with numbers in place of its messages: the assistant's turns, calls, characters."""
    if row:
        row["messages"] = _count(_list(row, "messages"))
    return row


def _count(messages: list[Any]) -> tuple[int, int, int]:
    turns = calls = characters = 0
    for message in messages:
        if type(message) is not dict:
            continue
        content = message.get("content")
        characters += len(content if type(content) is str else text_of_parts(content))
        if message.get("role") == "assistant":
            turns += 1
            calls += len(_list(message, "tool_calls"))
    return turns, calls, characters


def text_of_parts(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


_BATCHES: dict[str, Callable[[Sequence[Row]], Batch]] = {
    "rows": _results,
    "diff": _comparisons,
    "log": _records,
    "arena": _methods,
    "rollouts": _rollouts,
}
