"""The messages to and from a reward in a sandbox: JSON, validated by pydantic."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer
from pydantic_core import PydanticSerializationError

from guerdon.errors import InvalidArgumentError, RewardFunctionError
from guerdon.rubrics.functions.function import Mode, Parameters
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message

VERSION: Final = "guerdon-call/1"
Version = Literal["guerdon-call/1"]

# Bytes of an answer. Both sides refuse more; the host doesn't trust the sandbox to do so. Answers
# with few results are limited further, since reading takes time and memory.
MAX_REPLY, REPLY_BASE, REPLY_EACH = 16 << 20, 4 << 20, 256 << 10

# The maximum of conversations of a call, and so of results.
MOST_RESULTS = 100_000

# How deep values may be nested. Parsers of JSON give up at about 200.
MAX_DEPTH = 150

# The fields of most messages.
_USUAL = {"role", "content"}

_PLAIN = frozenset((str, int, float, bool, type(None)))
_ATOMS = (str, int, float, type(None))
_UNWRITABLE = (PydanticSerializationError, ValueError, RecursionError)

Model = TypeVar("Model", bound=BaseModel)


class RewardSpec(BaseModel):
    """What a sandbox needs to load a reward.

    Attributes:
        version: That of the format.
        spec: What the user wrote; its last part is the name.
        text: The text of the file; None if the sandbox reads it.
        file: The file name of the text, or the file to import.
        digest: That of the file's bytes.
        module: The top-level module of the spec, if it wouldn't be found. Then the file is its own,
            or its ``__init__.py``; a namespace package has none.
        folders: Where the submodules of the module are; none of a single file.
        folder: The folder of the file, if it may be read; it is put on ``sys.path``.
        mode: The requested mode.
        requirements: Those to check in the sandbox of a plug-in.
        keep_loop: Whether an async function has one event loop for all calls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Version
    spec: str
    text: str | None = None
    file: str | None = None
    digest: str | None = None
    module: str | None = None
    folders: tuple[str, ...] = ()
    folder: str | None = None
    mode: Mode | None = None
    requirements: tuple[str, ...] = ()
    keep_loop: bool = False


class Description(BaseModel):
    """A sandbox's description of the reward that it has loaded, which isn't trusted.

    Attributes:
        version: That of the format.
        refused: Why it can't be loaded; None if it is.
        traceback: That of the reward's own code.
        missing: The module that was not found, if that is why.
        name: The function's name.
        is_rubric: Whether it wraps a rubric.
        gates: The paths of its gates, if it wraps a rubric.
        rubrics: The names of the classes of its rubrics, by path.
        parameters: Its parameters.
        fingerprint: Of the function, or of the rubric: 16 hexadecimal digits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Version
    refused: str | None = None
    traceback: str | None = None
    missing: str | None = None
    name: str = Field(default="", max_length=1000)
    is_rubric: bool = False
    gates: tuple[str, ...] = ()
    rubrics: dict[str, str] = {}
    parameters: Parameters = Parameters("pointwise", None, None, frozenset(), False)
    fingerprint: str = Field(default="", pattern="^([0-9a-f]{16})?$")


class Call(BaseModel):
    """The arguments of a call of a reward.

    A pointwise call has one conversation and its ground truth; that of a batch has several.

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
        others: The function's other arguments, by name.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    version: Version
    rollouts: list[list[Message]]
    ground_truth: Any = None
    others: dict[str, Any] = Field(default_factory=dict)

    @field_serializer("rollouts")
    def _as_given(self, rollouts: list[list[Message]]) -> list[list[dict[str, Any]]]:
        # The same as the serializer of Message, in a third of the time.
        return [list(map(_fields, messages)) for messages in rollouts]


class Reply(BaseModel):
    """The answer of a reward.

    Attributes:
        version: That of the format.
        results: One for each conversation.
        refused: Why the call was refused; None if it wasn't.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    version: Version
    # Validation stops at the first invalid one: there could be millions.
    results: list[EvaluateResult] = Field(
        default_factory=list, max_length=MOST_RESULTS, fail_fast=True
    )
    refused: str | None = None


# The host's side ----------------------------------------------------------------------------------


def write_call(
    rollouts: list[list[Message]], ground_truth: Any = None, others: dict[str, Any] | None = None
) -> bytes:
    """Return a call as bytes, with arguments that `check_messages` and `check_json` accept.

    Args:
        rollouts: The conversations.
        ground_truth: Of one its own, of a batch the list of them.
        others: The function's other arguments, by name.
    """
    for name in others or ():
        if not name.isascii() and not _is_utf8(name):
            raise InvalidArgumentError(f"the name {name!r:.60} can't be encoded as UTF-8")
    # Without validation: the messages are valid.
    call = Call.model_construct(
        version=VERSION, rollouts=rollouts, ground_truth=ground_truth, others=others or {}
    )
    try:
        return _dump(call)
    except _UNWRITABLE as error:
        raise InvalidArgumentError(f"the messages can't be sent to a sandbox: {error}") from None


def check_messages(messages: Sequence[Message], where: str) -> None:
    """Refuse messages that JSON can't represent.

    Raises:
        InvalidArgumentError: One contains such a value.
    """
    for place, message in enumerate(messages):
        if type(message.content) is not str:
            check_json(message.content, f"{where}[{place}].content")
        if message.tool_calls:
            check_json(message.tool_calls, f"{where}[{place}].tool_calls")
        if message.model_extra:
            check_json(message.model_extra, f"{where}[{place}]")


def check_json(value: Any, where: str) -> None:
    """Refuse a value that JSON can't represent.

    Tuples are accepted: they become lists. So are NaN and infinity.

    Example:
        >>> check_json({"answers": [4, 2, {6, 7}]}, "ground_truth")
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: ground_truth['answers'][2] is {6, 7} (set); a sandbox \
takes what JSON can represent: text, numbers, true, false, null, lists, and dicts with text for keys

    Args:
        value: Any value.
        where: Its name, for the error.

    Raises:
        InvalidArgumentError: It contains something else, contains itself, or is nested more than
            `MAX_DEPTH` deep.
    """
    if type(value) in _PLAIN:
        return
    found = find_foreign(value)
    if found is not None:
        raise InvalidArgumentError(
            f"{where}{found}; a sandbox takes what JSON can represent: text, numbers, true, false, "
            "null, lists, and dicts with text for keys"
        )


def read_reply(data: bytes, count: int) -> list[EvaluateResult]:
    """Read an answer, which isn't trusted: the scored code could have written it.

    Example:
        >>> from guerdon import EvaluateResult
        >>> [result.score for result in read_reply(write_reply([EvaluateResult(score=1)]), 1)]
        [1.0]
        >>> read_reply(b'{"version": "guerdon-call/1", "results": [{"score": "1"}]}', 1)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: the sandbox's answer: results.0.score: \
a score is a finite float, not '1'

    Args:
        data: The bytes of the answer.
        count: How many results there should be.

    Raises:
        InvalidArgumentError: It is not a valid answer, or has another number of results.
    """
    most = min(MAX_REPLY, REPLY_BASE + count * REPLY_EACH)
    if len(data) > most:
        raise InvalidArgumentError(
            f"the sandbox's answer has {len(data):,} bytes; at most {most:,} are read"
        )
    reply = read_message(Reply, data, "the sandbox's answer")
    if reply.refused is not None:
        raise InvalidArgumentError(f"the sandbox's answer: it refused the call: {reply.refused}")
    if len(reply.results) != count:
        raise InvalidArgumentError(
            f"the sandbox's answer has {len(reply.results)} results for {count} rollouts"
        )
    return reply.results


# The sandbox's side -------------------------------------------------------------------------------


def read_call(job: bytes) -> Call:
    """Read a call.

    Raises:
        InvalidArgumentError: It is not a valid call, or of another version.
    """
    return read_message(Call, job, "the call")


def write_reply(results: Sequence[EvaluateResult]) -> bytes:
    """Return an answer as bytes. A result that is too long, or not JSON, becomes invalid."""
    checked = [_checked(result) for result in results]
    data = _written(checked)
    if data is None or len(data) > MAX_REPLY:
        short = [_short(result) for result in checked]
        data = _written(short)
        if data is None or len(data) > MAX_REPLY:  # too many results
            data = _dump(Reply(version=VERSION, results=[_too_long(data or b"")] * len(short)))
    return data


def write_refusal(why: str) -> bytes:
    """Return the answer to an invalid call."""
    return Reply(version=VERSION, refused=why).model_dump_json().encode()


# Both sides ---------------------------------------------------------------------------------------


def read_message(kind: type[Model], data: bytes, what: str) -> Model:
    """Read a message.

    Args:
        kind: Its model.
        data: The bytes.
        what: Its name, for the error.

    Raises:
        InvalidArgumentError: It is invalid, or of another version.
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
        raise InvalidArgumentError(f"{what} is not JSON: {error}") from None


def find_foreign(value: Any, depth: int = 0) -> str | None:
    """Return where a value contains what JSON can't represent, and what; None if it doesn't.

    Example:
        >>> find_foreign({"when": b"now"})
        "['when'] is b'now' (bytes)"
    """
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return None if isinstance(value, _ATOMS) else f" is {_with_type(value)}"
    if depth > MAX_DEPTH:
        return f" is nested more than {MAX_DEPTH} deep"
    for key, inner in items:
        if isinstance(value, dict) and (wrong := _invalid_key(key)):
            return wrong
        if type(inner) in _PLAIN:
            continue
        found = find_foreign(inner, depth + 1)
        if found is not None:
            # The path to a value that is nested too deep is too long to show.
            return found if found.startswith(" is nested") else f"[{reprlib.repr(key)}]{found}"
    return None


def _invalid_key(key: Any) -> str | None:
    if not isinstance(key, str):
        return f" has the key {_with_type(key)}"
    if not key.isascii() and not _is_utf8(key):
        return f" has the key {reprlib.repr(key)}, which can't be encoded as UTF-8"
    return None


def _is_utf8(key: str) -> bool:
    """Return whether UTF-8 can encode a key; pydantic would silently change others."""
    return key.encode("utf-8", "ignore").decode() == key


def _with_type(value: Any) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields that a message was created with."""
    given, values = message.model_fields_set, message.__dict__
    if given == _USUAL:
        return {"role": values["role"], "content": values["content"]}
    return {name: values[name] for name in values if name in given} | (message.model_extra or {})


def _problem(invalid: ValidationError) -> str:
    problems = invalid.errors(include_url=False)
    for problem in problems:
        if problem["loc"] == ("version",) and problem["type"] != "missing":
            return f"its version is {problem['input']!r:.60}; this guerdon uses {VERSION!r}"
    where = ".".join(map(str, problems[0]["loc"]))
    text = problems[0]["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _dump(model: BaseModel) -> bytes:
    try:
        return model.model_dump_json(warnings="error").encode()
    except PydanticSerializationError as error:
        if "surrogates not allowed" not in str(error):
            raise
    # The standard library writes a lone surrogate as an escape.
    return json.dumps(model.model_dump(warnings="error")).encode()


def _written(results: list[EvaluateResult]) -> bytes | None:
    """Return an answer as bytes; None if a field of a result isn't of its declared type."""
    reply = Reply.model_construct(version=VERSION, results=results)
    try:
        return _dump(reply)
    except _UNWRITABLE:
        return None


def _checked(result: EvaluateResult) -> EvaluateResult:
    metrics = [("metrics", result.metrics)] if result.metrics else []
    for number, output in enumerate(result.step_outputs or ()):
        if output.metrics:
            metrics.append((f"step_outputs[{number}].metrics", output.metrics))
    for where, value in metrics:
        found = find_foreign(value)
        if found is not None:
            return _invalid(f"{where}{found}; a result contains what JSON can represent")
    return result


def _short(result: EvaluateResult) -> EvaluateResult:
    """Return the result, or an invalid one if it can't be sent."""
    try:
        data = _dump(result)
    except _UNWRITABLE as error:
        return _invalid(f"the result can't be written as JSON: {error}")
    return _too_long(data) if len(data) > MAX_REPLY // 64 else result


def _too_long(data: bytes) -> EvaluateResult:
    return _invalid(f"the answer is too long: {len(data):,} bytes as JSON of at most {MAX_REPLY:,}")


def _invalid(why: str) -> EvaluateResult:
    return EvaluateResult(error=f"{RewardFunctionError.__name__}: {why}")
