"""What is sent to a reward function in a sandbox, and what comes back: JSON, by pydantic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer
from pydantic_core import PydanticSerializationError

from guerdon.errors import InvalidArgumentError, RewardFunctionError
from guerdon.sandbox.evaluating.json_values import check_json, find_foreign, writable
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message

__all__ = [
    "Call",
    "MAX_REPLY",
    "Reply",
    "VERSION",
    "check_messages",
    "read_call",
    "read_reply",
    "read_wire",
    "write_call",
    "write_refusal",
    "write_reply",
]

VERSION: Final = "guerdon-call/1"

# Bytes of an answer. Either side refuses more: one speaks plainly, the other can't be lied to.
# One with few results has no need for all of it: reading takes time and memory here.
MAX_REPLY, REPLY_BASE, REPLY_EACH = 16 << 20, 4 << 20, 256 << 10

# Conversations that a call can have, and so results.
MOST_RESULTS = 100_000

# The fields of most messages.
_USUAL = {"role", "content"}

Model = TypeVar("Model", bound=BaseModel)


class Call(BaseModel):
    """What a reward function is called with.

    Pointwise it is one conversation and its ground truth, in a batch several and theirs.

    Example:
        >>> from guerdon.types import read_messages
        >>> messages = read_messages([{"role": "user", "content": "6 × 7?"}])
        >>> job = write_call([messages], "42", {"bonus": 0.5})
        >>> call = read_call(job)
        >>> call.rollouts[0][0].text, call.ground_truth, call.others
        ('6 × 7?', '42', {'bonus': 0.5})

    Attributes:
        version: That of the format.
        rollouts: The conversations.
        ground_truth: Of one conversation its own, of a batch the list of them.
        others: What else the function is given by name.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    version: Literal["guerdon-call/1"]
    rollouts: list[list[Message]]
    ground_truth: Any = None
    others: dict[str, Any] = Field(default_factory=dict)

    @field_serializer("rollouts")
    def _as_they_came(self, rollouts: list[list[Message]]) -> list[list[dict[str, Any]]]:
        # As Message writes itself, at a third of the cost: one call for all.
        return [list(map(_fields, messages)) for messages in rollouts]


class Reply(BaseModel):
    """What a reward function answered.

    Attributes:
        version: That of the format.
        results: One for each conversation.
        refused: Why the call was not read; None where it was.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    version: Literal["guerdon-call/1"]
    # It stops at the first that is none: there could be millions.
    results: list[EvaluateResult] = Field(
        default_factory=list, max_length=MOST_RESULTS, fail_fast=True
    )
    refused: str | None = None


def write_call(
    rollouts: list[list[Message]], ground_truth: Any = None, others: dict[str, Any] | None = None
) -> bytes:
    """A call as bytes; see `check_messages` and `check_json` for what it takes.

    Args:
        rollouts: The conversations.
        ground_truth: Of one its own, of a batch the list of them.
        others: What else the function is given by name.
    """
    for name in others or ():
        if not name.isascii() and not writable(name):
            raise InvalidArgumentError(f"the name {name!r:.60} can't be sent: UTF-8 can't hold it")
    # Past validation, all of which has been done: messages are Message.
    call = Call.model_construct(
        version=VERSION, rollouts=rollouts, ground_truth=ground_truth, others=others or {}
    )
    try:
        return _dump(call)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the messages can't be sent to a sandbox: {error}") from None


def check_messages(messages: Sequence[Message], where: str) -> None:
    """Refuse messages that hold what JSON can't.

    Raises:
        InvalidArgumentError: One does; it names where, and what it is.
    """
    for place, message in enumerate(messages):
        if type(message.content) is not str:
            check_json(message.content, f"{where}[{place}].content")
        if message.tool_calls:
            check_json(message.tool_calls, f"{where}[{place}].tool_calls")
        if message.model_extra:
            check_json(message.model_extra, f"{where}[{place}]")


def read_call(job: bytes) -> Call:
    """Read a call.

    Raises:
        InvalidArgumentError: It is none, or of another version.
    """
    return read_wire(Call, job, "the call")


def write_reply(results: Sequence[EvaluateResult]) -> bytes:
    """An answer as bytes; a result that JSON can't hold, or that is too long, becomes invalid."""
    sound = [_sound(result) for result in results]
    data = _written(sound)
    if data is None or len(data) > MAX_REPLY:
        short = [_short(result) for result in sound]
        data = _written(short)
        if data is None or len(data) > MAX_REPLY:  # many that are each of a fair size
            data = _dump(Reply(version=VERSION, results=[_too_long(data or b"")] * len(short)))
    return data


def write_refusal(why: str) -> bytes:
    """The answer to what is no call."""
    return Reply(version=VERSION, refused=why).model_dump_json().encode()


def read_reply(data: bytes, count: int) -> list[EvaluateResult]:
    """Read an answer, which may be anything: the code that it scores could have written it.

    Example:
        >>> from guerdon import EvaluateResult
        >>> [result.score for result in read_reply(write_reply([EvaluateResult(score=1)]), 1)]
        [1.0]
        >>> read_reply(b'{"version": "guerdon-call/1", "results": [{"score": "1"}]}', 1)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: the sandbox's answer: results.0.score: \
a score is a finite float, not '1'

    Args:
        data: What came.
        count: How many results there should be.

    Raises:
        InvalidArgumentError: It is no answer, or has another number of results.
    """
    most = min(MAX_REPLY, REPLY_BASE + count * REPLY_EACH)
    if len(data) > most:
        raise InvalidArgumentError(
            f"the sandbox's answer has {len(data):,} bytes; at most {most:,} are read"
        )
    reply = read_wire(Reply, data, "the sandbox's answer")
    if reply.refused is not None:
        raise InvalidArgumentError(f"the sandbox's answer: it refused the call: {reply.refused}")
    if len(reply.results) != count:
        raise InvalidArgumentError(
            f"the sandbox's answer has {len(reply.results)} results for {count} rollouts"
        )
    return reply.results


def read_wire(kind: type[Model], data: bytes, what: str) -> Model:
    """Read a model of the wire.

    Args:
        kind: Which.
        data: The bytes.
        what: What they are called, for the error.

    Raises:
        InvalidArgumentError: They are none, or of another version.
    """
    try:
        try:
            return kind.model_validate_json(data, strict=True)
        except ValidationError as invalid:
            # Pydantic's parser refuses lone surrogates, which the standard library's reads.
            if b"\\ud" not in data or invalid.errors()[0]["type"] != "json_invalid":
                raise
            return kind.model_validate(json.loads(data))
    except ValidationError as invalid:
        raise InvalidArgumentError(f"{what}: {_problem(invalid)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} is no JSON: {error}") from None


def _fields(message: Message) -> dict[str, Any]:
    """The fields that a message was given."""
    given, values = message.model_fields_set, message.__dict__
    if given == _USUAL:
        return {"role": values["role"], "content": values["content"]}
    return {name: values[name] for name in values if name in given} | (message.model_extra or {})


def _problem(invalid: ValidationError) -> str:
    problems = invalid.errors(include_url=False)
    for problem in problems:
        if problem["loc"] == ("version",) and problem["type"] != "missing":
            return f"its version is {problem['input']!r:.60}; this guerdon speaks {VERSION!r}"
    where = ".".join(map(str, problems[0]["loc"]))
    text = problems[0]["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _dump(model: BaseModel) -> bytes:
    try:
        return model.model_dump_json(warnings="error").encode()
    except PydanticSerializationError as error:
        if "surrogates not allowed" not in str(error):
            raise
    # The standard library writes a lone surrogate as the escape that it came in as.
    return json.dumps(model.model_dump(warnings="error")).encode()


def _written(results: list[EvaluateResult]) -> bytes | None:
    """An answer as bytes; None where a field of a result isn't what it is declared to be."""
    reply = Reply.model_construct(version=VERSION, results=results)
    try:
        return _dump(reply)
    except (PydanticSerializationError, ValueError, RecursionError):
        return None


def _sound(result: EvaluateResult) -> EvaluateResult:
    metrics = [("metrics", result.metrics)] if result.metrics else []
    for number, output in enumerate(result.step_outputs or ()):
        if output.metrics:
            metrics.append((f"step_outputs[{number}].metrics", output.metrics))
    for where, value in metrics:
        found = find_foreign(value)
        if found is not None:
            return _invalid(f"{where}{found}; a result holds what JSON can hold")
    return result


def _short(result: EvaluateResult) -> EvaluateResult:
    """The result, or why it can't be sent, one by one: the others are kept."""
    try:
        data = _dump(result)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        return _invalid(f"the result can't be written as JSON: {error}")
    return _too_long(data) if len(data) > MAX_REPLY // 64 else result


def _too_long(data: bytes) -> EvaluateResult:
    return _invalid(f"the answer is too long: {len(data):,} bytes as JSON of at most {MAX_REPLY:,}")


def _invalid(why: str) -> EvaluateResult:
    return EvaluateResult(error=f"{RewardFunctionError.__name__}: {why}")
