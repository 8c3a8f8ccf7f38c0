"""`Codec`: pickles what a pool and one of its workers send each other."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import sys
import traceback
from collections.abc import Sequence
from functools import cache, lru_cache
from types import FunctionType
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel

from guerdon._loading import PREFIX, load_object
from guerdon.errors import EnvError, InvalidObservationError, MissingExtraError, WorkerError
from guerdon.rubrics.failure import describe_failure

__all__: list[str] = []

PROTOCOL = 5  # large arrays are written without a copy
PACKED = 5  # how many parts a packed model has

# How many classes of one sender the receiver remembers. More are sent by value each time.
MAX_CLASSES = 4096

_new, _set = object.__new__, object.__setattr__
_codecs: WeakValueDictionary[str, Codec] = WeakValueDictionary()


# A call of a slot: the slot, the name of the runner's method, and its arguments. The last one of
# "reset" and "configure" is the configuration of the episode, or None. "ping" has no effect.
Call = tuple[int, str, tuple[Any, ...]]

# How a call of a slot ended: the slot, what it returned, what it raised, and the means of an
# episode that ended, which a curriculum needs.
Result = tuple[int, Any, "BaseException | None", Any]


class Codec:
    """Pickles the messages of one connection.

    A class without an import path, such as one of a script or a notebook, is sent by value once,
    and as a number from then on. If it came from the other side, the other side gets its own class
    back. A model is sent as its contents, which takes half the time of pickling it.

    Example:
        >>> here, there = Codec("a", "b"), Codec("b", "a")
        >>> there.decode(here.encode({"column": 3}))
        {'column': 3}

    Args:
        name: The name of this end of the connection, which no other connection has.
        peer: The name of the other end.
    """

    def __init__(self, name: str, peer: str) -> None:
        self.name = name
        self._peer = peer
        self._sent: dict[Any, int] = {}
        self._fresh: dict[Any, int] = {}  # of the message that is being written
        self._received: dict[int, Any] = {}
        _codecs[name] = self

    def encode(self, value: Any) -> bytes:
        """Pickle a value.

        Raises:
            MissingExtraError: It contains a class or a function that has no import path, and
                ``cloudpickle`` isn't installed.
            Exception: It can't be pickled.
        """
        file = io.BytesIO()
        self.write(self.pickler(file), value)
        return file.getvalue()

    def decode(self, data: Any) -> Any:
        """Return the value of a pickle of the other end, which are the only ones to be trusted."""
        return pickle.loads(data)

    def pickler(self, file: Any) -> pickle.Pickler:
        """Return a pickler for `write`."""
        made = _Pickler(file, PROTOCOL)
        made.codec = self
        return made

    def write(self, pickler: pickle.Pickler, value: Any) -> None:
        """Pickle a value into the pickler's file."""
        pickler.clear_memo()
        try:
            pickler.dump(value)
            if self._fresh:
                self._sent.update(self._fresh)
        finally:
            if self._fresh:
                self._fresh.clear()

    # Models ------------------------------------------------------------------------------------

    def pack(self, model: Any) -> Any:
        """Return the contents of a model in place of it; any other value unchanged."""
        kind: Any = type(model)
        number: Any = self._sent.get(kind)
        if number is None:
            if not _is_plain_model(kind) or len(self._sent) >= MAX_CLASSES:
                return model
            number = self._number(kind), kind
        return (
            number,
            model.__dict__,
            model.__pydantic_fields_set__,
            model.__pydantic_extra__,
            model.__pydantic_private__,
        )

    def unpack(self, packed: Any) -> Any:
        """Return the value that was packed."""
        if packed.__class__ is not tuple:
            return packed
        number, contents, fields_set, extra, private = packed
        if number.__class__ is tuple:
            number, kind = number
            self._received[number] = kind
        model = _new(self._received[number])
        _set(model, "__dict__", contents)
        _set(model, "__pydantic_fields_set__", fields_set)
        _set(model, "__pydantic_extra__", extra)
        _set(model, "__pydantic_private__", private)
        return model

    # Calls -------------------------------------------------------------------------------------

    def encode_calls(self, calls: Sequence[Call]) -> bytes:
        """Return the calls without their slots."""
        packed = [(method, [self.pack(each) for each in given]) for _, method, given in calls]
        return self.encode(packed)

    def decode_calls(self, slots: Sequence[int], data: bytes) -> list[Call]:
        """Return the calls of slots."""
        return [
            (slot, method, tuple(map(self.unpack, packed)))
            for slot, (method, packed) in zip(slots, self.decode(data), strict=True)
        ]

    # Results -----------------------------------------------------------------------------------

    def pack_result(self, value: Any, error: BaseException | None, means: Any) -> Any:
        """Return a result in the form for `write`."""
        packed = self.pack(value)
        if error is None and means is None and packed.__class__ is tuple:
            return packed  # nearly all
        return packed, error and self.pack_error(error), means

    def encode_result(self, value: Any, error: BaseException | None, means: Any) -> bytes:
        """Return a result, or the error that it can't be sent."""
        try:
            return self.encode(self.pack_result(value, error, means))
        except Exception as failure:
            text = describe_failure(failure, "the observation can't be sent by the worker")
            return self.encode(self.pack_result(None, InvalidObservationError(text), means))

    def read_result(self, slot: int, data: Any) -> Result:
        """Return a result from its pickle."""
        try:
            found = pickle.loads(data)
            if len(found) == PACKED:
                return slot, self.unpack(found), None, None
            value, error, means = found
            return slot, self.unpack(value), error and self.unpack_error(*error), means
        except Exception as failure:
            text = describe_failure(failure, "the result of the worker can't be read")
            return slot, None, InvalidObservationError(text), None

    def pack_error(self, error: BaseException) -> tuple[bytes | None, str, str]:
        """Return an exception in the form for `write`; one that can't be pickled as its text."""
        described, trace = describe_failure(error), "".join(traceback.format_exception(error))
        try:
            return self.encode(error), described, trace
        except Exception:
            return None, described, trace

    def unpack_error(self, data: bytes | None, described: str, trace: str) -> BaseException:
        """Return the exception, or one that `describe_failure` describes by the same text.

        Its cause is the traceback of the worker, for logs.
        """
        error = self._exception(data, described)
        error.__cause__ = WorkerError(f"in the worker:\n{trace}")
        return error

    def _exception(self, data: bytes | None, described: str) -> BaseException:
        if data is not None:
            # Unpickling fails if `__init__` takes other arguments than the message.
            with contextlib.suppress(Exception):
                error = self.decode(data)
                if describe_failure(error) == described:
                    return error  # type: ignore[no-any-return]
        found = re.match(r"((?:rubric '.*?': )?\w+)(?:: (.*))?", described, re.DOTALL)
        assert found is not None
        kind: type[EnvError] = type(found[1], (EnvError,), {})
        return kind(found[2] or "")

    # Classes without an import path ------------------------------------------------------------

    def _number(self, kind: Any) -> int:
        return self._fresh.setdefault(kind, len(self._sent) + len(self._fresh))

    def reference(self, found: Any) -> tuple[Any, ...]:
        """Return how a class or function without an import path is pickled."""
        number = self._sent.get(found)
        if number is not None:
            return recall, (self._peer, number)
        by_file = _in_file(found)
        if by_file is not None:
            loading: tuple[Any, Any, str | None] = (load_object, by_file, None)
        else:
            loading = (pickle.loads, *_by_value(found))
        if not isinstance(found, type) or len(self._sent) >= MAX_CLASSES:
            return learn, (None, 0, *loading)
        return learn, (self._peer, self._number(found), *loading)

    def remember(self, number: int, found: Any = None) -> Any:
        """Return what the other end has sent by number, or remember it."""
        return self._received.setdefault(number, found)


def recall(name: str, number: int) -> Any:
    """Return a class that was received before."""
    return _codecs[name].remember(number)


def learn(name: str | None, number: int, load: Any, data: Any, tracker: str | None) -> Any:
    """Return a class or a function that is received for the first time."""
    found = None
    if tracker is not None:
        from cloudpickle import cloudpickle

        # Loading it again would overwrite the class's attributes here by those of the other side.
        found = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    found = load(data) if found is None else found
    return found if name is None else _codecs[name].remember(number, found)


class _Pickler(pickle.Pickler):
    codec: Codec

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, (type, FunctionType)) and not _has_import_path(found):
            return self.codec.reference(found)
        return NotImplemented


@lru_cache(maxsize=1024)
def _has_import_path(found: Any) -> bool:
    module = found.__module__
    if module == "builtins":
        return True
    return module != "__main__" and not module.startswith(PREFIX) and _is_named(found)


def _is_named(found: Any) -> bool:
    """Whether a class or function is what its name stands for."""
    here: Any = sys.modules.get(found.__module__)
    for part in found.__qualname__.split("."):
        here = getattr(here, part, None)
    return here is found


def _in_file(found: Any) -> str | None:
    """The ``file.py:name`` of what was loaded from a user's file."""
    if not found.__module__.startswith(PREFIX) or not _is_named(found):
        return None
    return f"{sys.modules[found.__module__].__file__}:{found.__qualname__}"


def _by_value(found: Any) -> tuple[bytes, str | None]:
    try:
        from cloudpickle import cloudpickle
    except ImportError as error:
        name = f"{found.__module__}.{found.__qualname__}"
        raise MissingExtraError(
            f"{name} can't be imported by other processes; move it to a module, or install "
            "cloudpickle: pip install 'guerdon[processes]'",
            extra="processes",
        ) from error
    file = io.BytesIO()
    _value_pickler()(file, PROTOCOL).dump(found)
    # A private function, in all versions from 1.4 on: how cloudpickle identifies a class.
    tracker = cloudpickle._get_or_create_tracker_id(found) if isinstance(found, type) else None
    return file.getvalue(), tracker


@cache
def _value_pickler() -> Any:
    import cloudpickle

    class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, found: Any) -> Any:
            if isinstance(found, (type, FunctionType)):
                by_file = _in_file(found)
                if by_file is not None:
                    return load_object, (by_file,)
            reduced = super().reducer_override(found)
            if isinstance(found, type(BaseModel)) and reduced is not NotImplemented:
                # The variables of the function in which a model was defined.
                reduced[2][0].pop("__pydantic_parent_namespace__", None)
            return reduced

    return ValuePickler


# What pickling a model calls, as far as an author may override it.
PICKLING = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__new__")


@lru_cache(maxsize=1024)
def _is_plain_model(kind: Any) -> bool:
    return issubclass(kind, BaseModel) and not any(
        getattr(kind, name, None) is not getattr(BaseModel, name, None) for name in PICKLING
    )
