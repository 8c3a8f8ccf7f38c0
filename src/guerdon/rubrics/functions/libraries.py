"""Reward functions of TRL, verl, verifiers and OpenRLHF as ours, called as their library does."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from types import SimpleNamespace
from typing import Any, Literal

from guerdon._validation import check_choice
from guerdon.errors import RewardFunctionError
from guerdon.rubrics.conventions import VARIADIC, parameters_in
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.functions.function import RewardFunction, failed, result_of, results_of
from guerdon.rubrics.state import unwrapped
from guerdon.types.columns import texts_of
from guerdon.types.content import joined_text
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message


def from_trl(
    function: Callable[..., Any], *, mode: Literal["batch", "pointwise"] = "batch"
) -> RewardFunction:
    """Convert a reward function of TRL's `GRPOTrainer`, sync or async.

    It is called by name with ``prompts``, ``completions`` and the columns of the rollouts, as lists
    with an entry for each rollout: texts for rollouts that are read from the texts ``prompt`` and
    ``completion``, otherwise lists of messages. None is a row without a score. If it raises for a
    group, the rollouts for which it raises alone fail, and it is called with the others again.

    Example:
        >>> from guerdon import read_rollouts, score_rollouts
        >>> from guerdon.integrations import from_trl
        >>> def correct(completions, answer, **kwargs):
        ...     return [float(a in text) for text, a in zip(completions, answer)]
        >>> rows = [{"prompt": "6 × 7?", "completion": "42", "answer": "42"}]
        >>> [row["score"] for row in score_rollouts(from_trl(correct), rows)]
        [1.0]

    Args:
        function: The function. ``log_extra`` and ``log_metric`` do nothing; ``trainer_state`` must
            be bound with `functools.partial`.
        mode: ``batch`` calls it once for the rollouts of a group; ``pointwise`` with lists of one,
            for a tree of rubrics.

    Raises:
        RewardFunctionError: It is no such function.
    """
    return _convert(function, "trl", check_choice("mode", mode, ("batch", "pointwise")))


def from_verl(function: Callable[..., Any]) -> RewardFunction:
    """Convert a ``compute_score`` of verl, sync or async, for one rollout or a batch of them.

    It is called with ``data_source``, ``solution_str``, ``ground_truth`` and ``extra_info``, or the
    plurals of a batch manager. ``solution_str`` is the text of all messages after the prompt,
    ``ground_truth`` the column or that in ``reward_model``, and ``extra_info`` the column, or else
    all columns. Of a dict, ``score`` is the score and the rest are components.

    Example:
        >>> from guerdon import score_rollouts
        >>> from guerdon.integrations import from_verl
        >>> def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        ...     return {"score": float(solution_str == ground_truth), "length": len(solution_str)}
        >>> rows = [{"prompt": "6 × 7?", "completion": "42", "ground_truth": "42"}]
        >>> [(row["score"], row["components"])
        ...  for row in score_rollouts(from_verl(compute_score), rows)]
        [(1.0, {'length': 2.0})]

    Raises:
        RewardFunctionError: It is no such function.
    """
    names = {"data_sources", "solution_strs", "ground_truths", "extra_infos"}
    return _convert(function, "verl", "batch" if names & {*parameters_in(function)} else None)


def from_verifiers(function: Callable[..., Any]) -> RewardFunction:
    """Convert a reward function of verifiers, sync or async, for one rollout or a group of them.

    It is called by name with what it takes of ``prompt``, ``completion``, ``answer``, ``state``,
    ``info``, ``task``, ``parser`` and the columns of the rollouts, or with their plurals.
    ``answer`` is the column, or else the ground truth; ``parser`` is verifiers' own default, and
    another one is bound with `functools.partial`. A method of a v1 task that takes ``trace`` is
    called with the ``last_reply`` and ``messages`` of a trace, and a task whose ``data`` has the
    columns. An exception is a row without a score, where verifiers has 0.

    Example:
        >>> from guerdon import score_rollouts
        >>> from guerdon.integrations import from_verifiers
        >>> async def correct(completion, answer):
        ...     return float(completion[-1]["content"] == answer)
        >>> rows = [{"answer": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]}]
        >>> [row["score"] for row in score_rollouts(from_verifiers(correct), rows)]
        [1.0]

    Raises:
        RewardFunctionError: It is no such function.
    """
    plural = {"states", "prompts", "completions", "answers", "tasks", "infos"}
    return _convert(function, "verifiers", "batch" if plural & {*parameters_in(function)} else None)


def from_openrlhf(function: Callable[..., Any]) -> RewardFunction:
    """Convert a ``reward_func`` of OpenRLHF, sync or async.

    It is called with ``queries``, ``prompts`` and ``labels``, lists of one, as OpenRLHF does. A
    query is the prompt and the text of all messages after it; the label is the ground truth, or
    the column ``label``. Of a dict, ``rewards`` is the score, and ``scores`` and the ``extra_logs``
    are components.

    Example:
        >>> from guerdon import score_rollouts
        >>> from guerdon.integrations import from_openrlhf
        >>> def reward_func(queries, prompts, labels):
        ...     return {"rewards": [float(label in query) for query, label in zip(queries, labels)]}
        >>> rows = [{"prompt": "6 × 7?", "completion": "42", "label": "42"}]
        >>> [row["score"] for row in score_rollouts(from_openrlhf(reward_func), rows)]
        [1.0]

    Raises:
        RewardFunctionError: It is no such function.
    """
    return _convert(function, "openrlhf", "pointwise")


def _convert(function: Callable[..., Any], library: str, mode: str | None) -> RewardFunction:
    if isinstance(function, RewardFunction):
        return function
    if isinstance(function, type) or not callable(function):
        raise RewardFunctionError(f"from_{library} converts functions, got {function!r:.80}")
    kind = _AsyncLibraryFunction if is_async_callable(function) else _LibraryFunction
    adapted = kind(function, library, is_batch=mode == "batch", takes_lists=mode is not None)
    made = RewardFunction(adapted, "batch" if mode == "batch" else "pointwise")
    made.parameters = replace(made.parameters, accepted=adapted.accepted)
    return made


# Arguments ---------------------------------------------------------------------------------------


class _Messages(list[Any]):
    """A completion of messages, in which a function of texts would find nothing and score 0."""

    def __contains__(self, item: Any) -> bool:
        return super().__contains__(self._checked(item))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(self._checked(other))

    def _checked(self, other: Any) -> Any:
        if isinstance(other, str):
            raise TypeError(
                "the completion is a list of messages, not a text; its text is "
                "completion[-1]['content']"
            )
        return other


class _Conversation:
    """A rollout as other libraries see it: a prompt and a completion, both texts or messages."""

    def __init__(self, messages: list[Message], columns: Mapping[str, Any]) -> None:
        turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
        start = turns[int(columns.get("first_turn") or 0)] if turns else len(messages)
        before, after = messages[:start], messages[start:]
        self.prompt: Any = [message.to_openai() for message in before]
        self.completion: Any = _Messages(message.to_openai() for message in after)
        # As the model wrote them, with its reasoning.
        recorded = [joined_text(message.content) for message in messages]
        self.last_reply = recorded[turns[-1]] if turns else ""
        self.response = "\n".join(recorded[start:])
        self.question = "".join(f"{text}\n" for text in recorded[:start])
        texts = texts_of(columns)
        if texts is not None and [*texts] in (recorded, ["", *recorded]):
            self.prompt, self.completion = self.question, self.response = texts


def _of_trl(chat: _Conversation, columns: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": chat.prompt, "completion": chat.completion}


def _of_verl(chat: _Conversation, columns: dict[str, Any]) -> dict[str, Any]:
    own = {
        "data_source": columns.get("data_source"),
        "solution_str": chat.response,
        "extra_info": _mapping(columns, "extra_info") or dict(columns),
    }
    truths = {**_mapping(columns, "reward_model"), **columns}
    return own | {name: truths[name] for name in ("ground_truth",) if name in truths}


def _of_verifiers(chat: _Conversation, columns: dict[str, Any]) -> dict[str, Any]:
    own = {
        "prompt": chat.prompt,
        "completion": chat.completion,
        "info": _mapping(columns, "info"),
        "task": columns.get("task"),
    }
    own |= _first_as("answer", columns, ("answer", "ground_truth"))
    return own | {"state": columns | own}


# Columns of expected answers; a null is none.
TRUTHS = ("ground_truth", "answer", "label")


def _mapping(columns: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the mapping in a column, which may be written as JSON; an empty one without any."""
    value = columns.get(name) or {}
    with contextlib.suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return dict(value)
    raise RewardFunctionError(f"the column {name} must be a mapping or its JSON, got {value!r:.60}")


def _first_as(own: str, columns: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the first of the columns that has a value, under another name."""
    known = [columns[name] for name in names if columns.get(name) is not None]
    return {own: known[0]} if known else {}


def _of_openrlhf(chat: _Conversation, columns: dict[str, Any]) -> dict[str, Any]:
    own = {"query": chat.question + chat.response, "prompt": chat.question}
    return own | _first_as("label", columns, ("ground_truth", "label"))


def _of_trace(chat: _Conversation, columns: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a method of a task of verifiers v1."""
    task = SimpleNamespace(data=SimpleNamespace(**columns))
    trace = SimpleNamespace(last_reply=chat.last_reply, messages=chat.prompt + chat.completion)
    return {"self": task, "task": task, "trace": trace}


_PLURALS = {name: f"{name}s" for name in (
    *("prompt", "completion", "answer", "state", "info", "task", "label"),
    *("data_source", "solution_str", "ground_truth", "extra_info"),
)} | {"query": "queries"}  # fmt: skip

_ARGUMENTS = {
    "trl": _of_trl, "verl": _of_verl, "verifiers": _of_verifiers, "openrlhf": _of_openrlhf,
}  # fmt: skip


def _ignore(*_: Any) -> None:
    """Log nothing, in place of the hooks of a trainer."""


def _last_answer(completion: Any) -> Any:
    """The last answer of the model, as the default parser of verifiers takes it."""
    if isinstance(completion, str):
        return completion
    return [message["content"] for message in completion if message["role"] == "assistant"][-1]


# Passed to functions that require them.
_OBJECTS: dict[str, Any] = {
    "log_extra": _ignore,
    "log_metric": _ignore,
    "parser": SimpleNamespace(parse=str, parse_answer=_last_answer),
}


# Calls -------------------------------------------------------------------------------------------


class _LibraryFunction:
    """A function of another library, called with conversations and columns."""

    def __init__(
        self, function: Callable[..., Any], library: str, *, is_batch: bool, takes_lists: bool
    ) -> None:
        self.function = function
        self._library, self._is_batch, self._takes_lists = library, is_batch, takes_lists
        inner = unwrapped(function)
        self.__name__ = self.__qualname__ = getattr(inner, "__name__", type(inner).__name__)
        self.__module__, self.__doc__ = inner.__module__, inner.__doc__
        parameters = parameters_in(function)
        kinds = {name: parameter.kind for name, parameter in parameters.items()}
        self._named = {name for name, kind in kinds.items() if kind not in VARIADIC}
        self._required = {
            name for name in self._named if parameters[name].default is Parameter.empty
        }
        self._takes_all = Parameter.VAR_KEYWORD in kinds.values()
        self._takes_columns = self._takes_all and library in ("trl", "verifiers")

    @property
    def accepted(self) -> frozenset[str] | None:
        """The names of further arguments that reach the function; None for any name."""
        return None if self._takes_columns else frozenset(self._named)

    def __call__(self, conversations: Any, /, **columns: Any) -> Any:
        scoring = self._score(conversations, columns)
        try:
            scoring.send(None)  # a sync function never suspends it
        except StopIteration as done:
            return done.value
        scoring.close()
        raise RewardFunctionError(
            f"{self.__name__} returned an awaitable, but it isn't declared async; write "
            f"`async def {self.__name__}`"
        )

    async def _score(self, conversations: Any, columns: dict[str, Any]) -> Any:
        if not self._is_batch:
            return (await self._call([self._row(conversations, columns, {})], {}))[0]
        columns["ground_truth"] = columns.pop("ground_truths", None)
        count = len(conversations)
        lists = {
            name: values
            for name, values in columns.items()
            if isinstance(values, list) and len(values) == count
        }
        constants = {name: value for name, value in columns.items() if name not in lists}
        rows = [
            self._row(messages, {name: values[index] for name, values in lists.items()}, constants)
            for index, messages in enumerate(conversations)
        ]
        try:
            return await self._call(rows, constants)
        except RewardFunctionError:
            raise
        except Exception:
            failures = [await self._failure(row, constants) for row in rows]
            sound = [row for row, failure in zip(rows, failures, strict=True) if failure is None]
            if len(sound) in (0, count):
                raise
            results = iter(await self._call(sound, constants))
            return [failure or next(results) for failure in failures]

    async def _failure(
        self, row: dict[str, Any], constants: dict[str, Any]
    ) -> EvaluateResult | None:
        """The failure of the function if it raises for this row alone."""
        try:
            await self._call([row], constants)
        except Exception as error:
            return failed(error)
        return None

    def _row(
        self, messages: list[Message], columns: dict[str, Any], constants: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments for a rollout; in lists, names are plurals."""
        absent = {name for name in TRUTHS if columns.get(name) is None}
        columns = {name: value for name, value in columns.items() if name not in absent}
        read = _of_trace if "trace" in self._required else _ARGUMENTS[self._library]
        own = read(_Conversation(messages, columns), columns)
        row = {name: value for name, value in columns.items() if name not in own}
        if self._takes_lists:
            own = {_PLURALS[name]: value for name, value in own.items()}
        row |= own
        if not self._takes_columns:
            taken = self._named | own.keys() if self._takes_all else self._named
            row = {name: row[name] for name in row.keys() & taken}
        missing = sorted(self._required - row.keys() - constants.keys() - _OBJECTS.keys())
        if missing:
            raise RewardFunctionError(
                f"{self.__name__} takes {', '.join(missing)}, and the rollout has only the columns "
                f"{', '.join(sorted(columns))}; name the column of the expected answer with "
                "--ground-truth, and bind a constant with functools.partial"
            )
        return row

    async def _call(
        self, rows: Sequence[dict[str, Any]], constants: Mapping[str, Any]
    ) -> list[EvaluateResult]:
        arguments = rows[0]
        if self._takes_lists:
            names = dict.fromkeys(name for row in rows for name in row)
            arguments = {name: [row.get(name) for row in rows] for name in names}
        objects = {name: _OBJECTS[name] for name in self._required & _OBJECTS.keys()}
        value = self.function(**{**objects, **arguments, **constants})
        if inspect.isawaitable(value):
            value = await value
        if not self._takes_lists:
            return [result_of(_entry(value), self.__name__)]
        if isinstance(value, Mapping):  # of OpenRLHF
            logs = {"scores": value.get("scores"), **(value.get("extra_logs") or {})}
            value = [{"score": value.get("rewards"), **logs}]
        if callable(getattr(value, "tolist", None)):  # an array or a tensor
            value = value.tolist()
        if isinstance(value, list | tuple | Iterator):
            value = [_entry(entry) for entry in value]
        return results_of(value, len(rows), self.__name__)


class _AsyncLibraryFunction(_LibraryFunction):
    async def __call__(self, conversations: Any, /, **columns: Any) -> Any:
        return await self._score(conversations, columns)


# Results -----------------------------------------------------------------------------------------


def _entry(value: Any) -> Any:
    """What `result_of` takes, for the value that a function returned for a rollout."""
    if value is None:
        return EvaluateResult(is_score_valid=False, reason="the function returned None")
    if isinstance(value, Mapping):
        rest = {name: _only(metric) for name, metric in value.items() if metric is not None}
        return {"score": rest.pop("score", None), "metrics": rest}
    return _only(value)


def _only(value: Any) -> Any:
    """The number in an array, a tensor or a list of one; anything else is unchanged."""
    if callable(getattr(value, "tolist", None)):
        value = value.tolist()
    return value[0] if isinstance(value, list) and len(value) == 1 else value
