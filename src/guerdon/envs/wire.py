"""How data is written on the wire: as JSON, and in the frames of `guerdon.batch.v1`.

``docs/batch-protocol.md`` describes the frames. Client and server share this module.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from guerdon.types.arrays import KINDS

if TYPE_CHECKING:
    import numpy as np

# The sub-protocols.
JSON = "guerdon.batch.v1"
MSGPACK = "guerdon.batch.v1+msgpack"

# The header of an accepted handshake with the environment's name, percent-encoded: a client of a
# server without it requests `/metadata` over another connection.
NAME_HEADER = "guerdon-environment"

# What the functions below raise for data that can't be sent.
UNSENDABLE = (
    PydanticSerializationError, UnicodeError, ValueError, TypeError, OverflowError, RecursionError
)  # fmt: skip

# The usual most bytes of a frame: the receiver works on one while the next is written.
FRAME_BYTES = 2**17
# The most bytes of a frame beside its calls and their commas.
FRAME_OVERHEAD = 8
# MessagePack's extension type of an array, and the arrays that it may have.
ARRAY = 1
ARRAY_TYPES = ["|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"]
# Where a float of MessagePack may begin that is NaN or infinite, one of 64 bits or of 32. Two
# patterns that begin with a byte are found in a quarter of the time of one that has both.
_MAYBE_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_MAYBE_NOT_FINITE_32 = re.compile(rb"\xca[\x7f\xff][\x80-\xff]")
# What a float of JSON may contain that Python reads as infinity. Two patterns are faster than one.
_MAYBE_INFINITE = re.compile(rb"[eE]\+?\d\d+(?![^,\]}\s])")
_MAYBE_INFINITE_DIGITS = re.compile(rb"\d{300}")
# The most lists, objects and keys of a message, and the most values: what is larger takes seconds
# to decode, during which a server answers nobody. An array of MessagePack is one value.
MAX_LISTS, MAX_VALUES = 2**17, 2**19
_STRING = re.compile(rb'"[^"]*"?')
# How many bytes a value of MessagePack takes by its first byte, and that of those that have a
# length: how many bytes it has, and how many there are beside it and the content.
_SIZES = [1] * 160 + [*range(1, 33)] + [1] * 32 + [1] * 32
_SIZES[0xCA:0xD4] = 5, 9, 2, 3, 5, 9, 2, 3, 5, 9
_SIZES[0xD4:0xE0] = 3, 4, 6, 10, 18, 0, 0, 0, 3, 5, 3, 5
_LENGTHS = {0xC4: (1, 1), 0xC5: (2, 1), 0xC6: (4, 1), 0xC7: (1, 2), 0xC8: (2, 2), 0xC9: (4, 2)}
_LENGTHS |= {0xD9: (1, 1), 0xDA: (2, 1), 0xDB: (4, 1)}
_HAS_LENGTH = frozenset(_LENGTHS)
_IS_LIST = frozenset((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
# The most floats that an error names, and the most characters of the path of each.
MAX_NAMED, MAX_PATH = 5, 200
# The deepest nesting of a call or an answer in JSON: less than what is read, as a frame nests it.
MAX_DEPTH = 190
# Stands, with the index of an array, for that array while pydantic makes plain data. It is secret:
# no text of an agent contains it.
_TOKEN = secrets.token_hex(16)
_DIGITS = 8  # of the index
_TOKEN_STR = b"\xd9" + bytes([len(_TOKEN) + _DIGITS]) + _TOKEN.encode()  # as MessagePack
# The most types and shapes of arrays that are remembered.
MAX_HEADS = 256
_QUOTE = "'"


class NotFiniteError(ValueError):
    """A float is NaN or infinite; the message begins with its place."""


# JSON ----------------------------------------------------------------------------------------


def model_json(model: BaseModel, exclude: set[str] | None = None) -> bytes:
    """Return a model as JSON, with arrays as nested lists.

    Raises:
        NotFiniteError: It contains NaN or infinity.
        ValueError: It is not JSON-serializable; or another of `UNSENDABLE`.
    """
    text: bytes = model.__pydantic_serializer__.to_json(
        model, exclude=exclude, context=_LISTS, fallback=array_as_list
    )
    # NaN is written as NaN or, if a model inside is configured so, as null.
    if b"null" in text or b"NaN" in text or b"Infinity" in text:
        check_finite(model.model_dump())
    return text


def data_json(data: Any) -> bytes:
    """Return data as JSON, with arrays as nested lists; raise as `model_json` does."""
    if hasattr(data, "__pydantic_serializer__"):  # `isinstance` takes longer for a model's class
        return model_json(data)
    text = to_json(data, inf_nan_mode="constants", context=_LISTS, fallback=array_as_list)
    if b"NaN" in text or b"Infinity" in text:
        check_finite(data)
    return text


def read_json(text: str | bytes) -> Any:
    """Return the content of JSON that another process has sent.

    Raises:
        ValueError: It is not JSON, is nested too deeply or has too many values, or a float is not
            finite.
    """
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MAX_VALUES and _is_large(data):
        # Without its strings, which may contain what looks like values.
        plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        if _is_large(_STRING.sub(b"", plain, MAX_LISTS)):
            raise _too_large()
    content = from_json(data, allow_inf_nan=False)
    if _MAYBE_INFINITE.search(data) or _MAYBE_INFINITE_DIGITS.search(data):
        check_finite(content)
    return content


def _is_large(data: bytes) -> bool:
    lists = data.count(b"[") + data.count(b"{") + data.count(b":")
    return lists > MAX_LISTS or data.count(b",") > MAX_VALUES


def _too_large() -> ValueError:
    return ValueError(
        f"it has too many values; at most {MAX_VALUES:,} are accepted, {MAX_LISTS:,} of them "
        "lists, objects and their keys"
    )


def _check_msgpack(frame: bytes) -> None:
    """Check how many values a frame has, without making them.

    Raises:
        ValueError: They are too many.
    """
    position = lists = values = 0
    size = len(frame)
    while position < size:
        head = frame[position]
        if head in _HAS_LENGTH:
            width, beside = _LENGTHS[head]
            content = position + 1
            position += width + beside + int.from_bytes(frame[content : content + width], "big")
        else:
            lists += head in _IS_LIST
            position += _SIZES[head]
        values += 1
        if lists > MAX_LISTS or values > MAX_VALUES:
            raise _too_large()


def array_as_list(value: Any) -> Any:
    """Return an array as nested lists, for JSON.

    Raises:
        ValueError: It contains NaN or infinity, or is not an array of numbers.
    """
    _wire_type(value)
    if value.dtype.kind == "f" and value.size and not math.isfinite(value.sum()):
        check_finite(value.tolist())
    return value.tolist()


class _Lists:
    """What the serializer of an `ArrayField` makes of an array."""

    keep_array = staticmethod(array_as_list)


_LISTS = _Lists()


def _wire_type(value: Any) -> Any:
    """Return the type that an array has on the wire.

    Raises:
        ValueError: It is not an array, or has none.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    found = _little_endian(value.dtype) if kind in KINDS and hasattr(value, "ndim") else None
    if found is None:
        raise ValueError(f"unable to serialize {type(value).__name__}")
    return found


@cache
def _little_endian(dtype: Any) -> Any:
    """Return a type of arrays in little-endian order; None if it has no name on the wire."""
    kind = dtype.newbyteorder("<")
    return kind if kind.str in ARRAY_TYPES else None


def check_finite(value: Any) -> None:
    """Check that JSON can represent all floats.

    Raises:
        NotFiniteError: One is NaN or infinite.
    """
    found = list(islice(_not_finite(value), MAX_NAMED))
    if found:
        named = ", ".join(f"{number!r} at {path.lstrip('.')[:MAX_PATH]}" for path, number in found)
        raise NotFiniteError(f"{named}, which JSON can't represent; use a finite number or None")


def _not_finite(value: Any) -> Iterator[tuple[str, float]]:
    """Yield the floats that JSON can't represent, each with its path."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield "", value
        return
    for name, each in parts(value):
        for path, number in _not_finite(each):
            yield name + path, number


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of nested data, each with its step in a path."""
    if isinstance(value, BaseModel):
        yield from ((f".{name}", each) for name, each in value)
    elif isinstance(value, Mapping):
        yield from ((f".{ascii(key).strip(_QUOTE)}", value[key]) for key in value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))


# Codecs --------------------------------------------------------------------------------------


class JsonCodec:
    """Frames as JSON, in text frames.

    Example:
        >>> codec = JsonCodec()
        >>> codec.frame([codec.encode(3, "step", {"text": "hi"}), codec.encode(4, "close", None)])
        '[[3,"step",{"text":"hi"}],[4,"close",null]]'
        >>> codec.decode(b'[[3,"close"]]')
        [[3, 'close']]
    """

    name = JSON
    is_text = True

    def encode(self, number: int | None, kind: str, data: Any) -> bytes:
        """Return a call or an answer; raise as `model_json` does."""
        head = "null" if number is None else str(number)
        encoded = b'[%s,"%s",%s]' % (head.encode(), kind.encode(), data_json(data))
        if encoded.count(b"[") + encoded.count(b"{") > MAX_DEPTH:  # else it can't be so deep
            from_json(b"[%s]" % encoded)  # raises here what would end the whole frame
        return encoded

    def frame(self, encoded: list[bytes]) -> str:
        """Return several calls or answers as one frame."""
        return (b"[%s]" % b",".join(encoded)).decode()

    def decode(self, frame: str | bytes, *, is_trusted: bool = False) -> Any:
        """Return the content of a frame.

        Args:
            frame: The frame.
            is_trusted: Whether floats that are not finite need not be looked for.

        Raises:
            ValueError: It is not JSON, is nested too deeply or has too many values, or a float is
                not finite.
        """
        return from_json(frame, allow_inf_nan=False) if is_trusted else read_json(frame)


class MsgpackCodec:
    """Frames as MessagePack, in binary frames; an array is its bytes with its type and shape.

    Example:
        >>> import numpy as np
        >>> codec = MsgpackCodec()
        >>> frame = codec.frame([codec.encode(3, "step", {"move": np.ones(2, "float32")})])
        >>> codec.decode(frame)
        [[3, 'step', {'move': array([1., 1.], dtype=float32)}]]

    Raises:
        ImportError: msgspec is not installed.
    """

    name = MSGPACK
    is_text = False

    def __init__(self) -> None:
        from msgspec import msgpack

        self._heads: dict[tuple[Any, tuple[int, ...]], bytes] = {}
        self._encode = msgpack.Encoder().encode
        self._decode = msgpack.Decoder(ext_hook=self._array).decode
        self._decode_array = msgpack.Decoder(tuple[str, list[int], memoryview]).decode

    def encode(self, number: int | None, kind: str, data: Any) -> bytes:
        """Return a call or an answer; raise as `model_json` does. An array may contain NaN."""
        arrays = _Arrays()
        serializer = getattr(data, "__pydantic_serializer__", None)
        if serializer is not None:
            plain = serializer.to_python(
                data, mode="json", context=arrays, fallback=arrays.keep_array
            )
        else:
            plain = to_jsonable_python(
                data, inf_nan_mode="constants", context=arrays, fallback=arrays.keep_array
            )
        encoded: bytes = self._encode((number, kind, plain))
        if _MAYBE_NOT_FINITE.search(encoded):
            check_finite(plain)
        return self._with_arrays(encoded, arrays.found) if arrays.found else encoded

    def _with_arrays(self, encoded: bytes, arrays: list[Any]) -> bytes:
        """Return an encoded call with its arrays in place of their tokens."""
        first, *rest = encoded.split(_TOKEN_STR)
        pieces: list[Any] = [first]
        for part in rest:
            array = arrays[int(part[:_DIGITS])]
            pieces += (self._array_head(array.dtype, array.shape), array.data, part[_DIGITS:])
        return b"".join(pieces)

    def _array_head(self, dtype: Any, shape: tuple[int, ...]) -> bytes:
        """Return what is before the numbers of an array, for all of its type and shape."""
        found = self._heads.get((dtype, shape))
        if found is None:
            size = math.prod(shape) * dtype.itemsize
            inner = b"\x93" + self._encode(dtype.str) + self._encode(shape)
            inner += b"\xc6" + size.to_bytes(4, "big")
            found = b"\xc9" + (len(inner) + size).to_bytes(4, "big") + bytes([ARRAY]) + inner
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[dtype, shape] = found
        return found

    def frame(self, encoded: list[bytes]) -> bytes:
        """Return several calls or answers as one frame."""
        return b"\xdd%s%s" % (len(encoded).to_bytes(4, "big"), b"".join(encoded))

    def decode(self, frame: str | bytes, *, is_trusted: bool = False) -> Any:
        """Return the content of a frame, with arrays of numpy.

        Args:
            frame: The frame.
            is_trusted: Whether floats that are not finite need not be looked for.

        Raises:
            ValueError: It is not MessagePack, is nested too deeply, has too many values or an
                invalid array, or a float outside of arrays is not finite.
        """
        if isinstance(frame, str):
            raise ValueError("it is text, not binary")
        if not is_trusted and len(frame) > MAX_VALUES:
            _check_msgpack(frame)
        try:
            content = self._decode(frame)
            if not is_trusted and (
                _MAYBE_NOT_FINITE.search(frame) or _MAYBE_NOT_FINITE_32.search(frame)
            ):
                check_finite(content)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return content

    def _array(self, code: int, payload: memoryview) -> np.ndarray[Any, Any]:
        import numpy as np

        if code != ARRAY:
            raise ValueError(f"an unknown extension type {code}")
        name, shape, data = self._decode_array(payload)
        if name not in ARRAY_TYPES:
            raise ValueError(f"an array of {name!r:.20}; allowed are {', '.join(ARRAY_TYPES)}")
        if min(shape, default=0) < 0 or math.prod(shape) * int(name[2:]) != len(data):
            raise ValueError(f"{len(data)} bytes for an array of {name} and shape {shape!r:.80}")
        # A copy: it can be written to, and doesn't keep the frame in memory.
        return np.frombuffer(data, name).reshape(shape).copy()


class _Arrays:
    """The arrays of one message, for which there are tokens while pydantic makes plain data.

    Attributes:
        found: The arrays, in the order of their tokens.
    """

    def __init__(self) -> None:
        self.found: list[Any] = []

    def keep_array(self, value: Any) -> Any:
        """Return a token for an array, and a number for a scalar of numpy."""
        import numpy as np

        kind = _wire_type(value)
        if isinstance(value, np.generic):
            return value.item()
        index = str(len(self.found)).zfill(_DIGITS)
        self.found.append(np.asarray(value, kind, order="C"))
        return _TOKEN + index


Codec: TypeAlias = JsonCodec | MsgpackCodec


def codecs() -> dict[str, Codec]:
    """Return the codecs that can be used here by sub-protocol, the fastest first."""
    try:
        return {MSGPACK: MsgpackCodec(), JSON: JsonCodec()}
    except ImportError:
        return {JSON: JsonCodec()}


def frames(
    codec: Codec,
    encoded: Sequence[bytes],
    max_bytes: int = FRAME_BYTES,
    *,
    max_calls: float = math.inf,
) -> Iterator[Any]:
    """Yield frames of several calls or answers, each with at most `max_bytes` or with only one."""
    taken: list[bytes] = []
    size = FRAME_OVERHEAD
    for each in encoded:
        if taken and (size + len(each) > max_bytes or len(taken) == max_calls):
            yield codec.frame(taken)
            taken, size = [], FRAME_OVERHEAD
        taken.append(each)
        size += len(each) + 1
    if taken:
        yield codec.frame(taken)
