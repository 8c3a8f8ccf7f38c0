"""What the columns of each kind of file are: result rows, comparisons, logs, arenas, rollouts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from hashlib import blake2b
from math import inf
from typing import Any, TypeAlias

from guerdon._validation import as_score
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rollouts.scoring.summary import kind_of_failure
from guerdon.viewer.columns import EMPTY, Record

Row: TypeAlias = "dict[str, Any]"

# Characters of a value of a category; the digest of a longer one keeps it apart from others.
MAX_VALUE = 200

RESULT_KEYS = ResultRow.__required_keys__ | ResultRow.__optional_keys__ | {"trees"}
# Keys of a rollout that are not columns of its task.
ROLLOUT_KEYS = frozenset(("id", "group", "messages"))


def kind_of(row: Row) -> str | None:
    """The kind of a file with such a row; None if it is none of ours.

    Example:
        >>> kind_of({"id": 1, "score": 0.5, "components": {}}), kind_of({"x": 1})
        ('rows', None)
    """
    if "arena" in row and "protocol" in row:
        return "arena"
    if isinstance(row.get("before"), dict) and isinstance(row.get("after"), dict):
        return "diff"
    if row.get("kind") in ("step", "weights", "config") and "step" in row:
        return "log"
    if "score" in row and "components" in row:
        return "rows"
    return "rollouts" if "messages" in row else None


def record_of(kind: str, row: Row) -> Record | None:
    """What a row adds to the columns of a file; None for a line without results.

    Args:
        kind: As `kind_of` returns it.
        row: The row. Almost anything may be missing, or be of another type.

    Raises:
        KeyError: The row is none of this kind.
    """
    return _RECORDS[kind](row)


def unreadable(kind: str, error: str, id: str | None) -> Record:
    """What a line adds that can't be read."""
    categories = {"status": "unreadable"} if kind in ("rows", "diff") else EMPTY
    return Record(categories=categories, texts={"id": id, "error": error})


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


def _result(row: Row) -> Record:
    score = row["score"]
    is_scored = score is not None and row.get("is_score_valid") is not False
    error = row.get("error")
    categories = {
        "status": "scored" if is_scored else "failed",
        "group": label_of(row.get("group")),
    }
    numbers: Row = {"score": score} if is_scored else {}
    if not is_scored:
        categories["failure"] = kind_of_failure(str(error or ""))
    rewards = row.get("step_rewards")
    if isinstance(rewards, list):
        numbers["turns"] = len(rewards)
    steps = row.get("steps")
    if steps and isinstance(steps, list):
        numbers |= _advantages(steps)
    if not row.keys() <= RESULT_KEYS:
        _add_columns(row, RESULT_KEYS, numbers, categories)
    # The components of a failed row are those up to the failure: no mean contains them.
    spread = {"components.": _mapping(row.get("components"))} if is_scored else EMPTY
    texts = {"id": text_of(row.get("id")), "error": text_of(error)}
    return Record(numbers, categories, texts, spread)


def _advantages(steps: list[Any]) -> dict[str, float]:
    found = [step.get("advantage") for step in steps if isinstance(step, dict)]
    known = [each for each in found if isinstance(each, int | float)]
    if not known:
        return {}
    mean = sum(known) / len(known)
    return {"advantage.min": min(known), "advantage.mean": mean, "advantage.max": max(known)}


def _add_columns(
    row: Row, known: frozenset[str], numbers: Row, categories: dict[str, str | None]
) -> None:
    """Add the other columns of a row: floats as numbers, other short values as categories."""
    for name, value in row.items():
        if name in known:
            continue
        if isinstance(value, float):
            numbers[name] = value
        elif isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= MAX_VALUE):
            categories[name] = text_of(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else EMPTY


# The others --------------------------------------------------------------------------------------

STATUS = {
    (True, True): "both",
    (True, False): "lost",
    (False, True): "won",
    (False, False): "failed",
}


def _comparison(row: Row) -> Record:
    before, after = _mapping(row["before"]), _mapping(row["after"])
    scores = as_score(before.get("score")), as_score(after.get("score"))
    numbers = {"before": scores[0], "after": scores[1]}
    if scores[0] is not None and scores[1] is not None:
        numbers["difference"] = scores[1] - scores[0]
    status = STATUS[scores[0] is not None, scores[1] is not None]
    spread = {
        f"{name}.": _mapping(side.get("components"))
        for name, side in (("before", before), ("after", after))
        if side.get("score") is not None
    }
    errors = [str(each["error"]) for each in (before, after) if each.get("error") is not None]
    texts = {"id": text_of(row.get("id")), "error": "; ".join(errors) or None}
    categories = {"status": status, "group": label_of(row.get("group"))}
    return Record(numbers, categories, texts, spread)


def _logged(row: Row) -> Record:
    spread = {f"{name}.": _mapping(row.get(name)) for name in ("components", "weights")}
    spread["invalid."] = dict.fromkeys(_mapping(row.get("invalid")), 1.0)
    categories = {name: label_of(row.get(name)) for name in ("kind", "env_id", "episode")}
    numbers = {"step": row["step"], "reward": row.get("reward"), "time": row.get("time")}
    texts = {"id": text_of(row.get("id")), "error": text_of(row.get("reward_error"))}
    return Record(numbers, categories, texts, spread)


# Numbers of a result of the arena: as they are, and lists with an entry for each seed.
OF_METHOD = ("learning_rate", "uniform", "optimum", "coverage", "seconds")
OF_SEEDS = ("area", "final", "updates", "steps")


def _of_arena(row: Row) -> Record | None:
    if "protocol" in row:
        return None
    numbers = {name: row.get(name) for name in OF_METHOD}
    for name in OF_SEEDS:
        found = row.get(name)
        if isinstance(found, list) and found:
            # As in the arena's table: the lower median, where a target that wasn't reached is ∞.
            known = (as_score(value) for value in found)
            numbers[name] = statistics.median_low(inf if each is None else each for each in known)
    categories = {name: label_of(row[name]) for name in ("world", "method")}
    return Record(numbers, categories, {"error": text_of(row.get("error"))})


def _rollout(row: Row) -> Record:
    turns = calls = characters = 0
    messages = row.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        characters += len(content if type(content) is str else text_of_parts(content))
        if message.get("role") == "assistant":
            turns += 1
            made = message.get("tool_calls")
            calls += len(made) if isinstance(made, list) else 0
    numbers: Row = {"turns": turns, "tool_calls": calls, "characters": characters}
    categories: dict[str, str | None] = {}
    _add_columns(row, ROLLOUT_KEYS, numbers, categories)
    return Record(numbers, categories, {"id": text_of(row.get("id"))})


def text_of_parts(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


_RECORDS: dict[str, Callable[[Row], Record | None]] = {
    "rows": _result,
    "diff": _comparison,
    "log": _logged,
    "arena": _of_arena,
    "rollouts": _rollout,
}
