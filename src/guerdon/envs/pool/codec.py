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


class UnreadableError(EnvError):
    """The arguments of several calls can't be read together: some may be readable alone."""


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
        # Classes that the next message introduces: the number, and how the class is loaded.
        self._fresh: dict[Any, tuple[Any, ...]] = {}
        self._received: dict[int, Any] = {}
        _codecs[name] = self

    def encode(self, value: Any) -> bytes:
        """Pickle a value.

        Raises:
            MissingExtraError: It contains a class or a function that has no import path, and
                ``cloudpickle`` isn't installed.
            Exception: It can't be pickled.
        """
        data = self._pickled(value)
        if self._fresh:
            data = pickle.dumps(_Introduction(self._peer, list(self._fresh.values()), data))
            self._sent.update((kind, fresh[0]) for kind, fresh in self._fresh.items())
            self._fresh.clear()
        return data

    def _pickled(self, value: Any) -> bytes:
        file = io.BytesIO()
        self.pickler(file).dump(value)
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
        """Pickle a value into the pickler's file.

        Raises:
            Exception: It can't be pickled, or `encode` has to introduce its classes.
        """
        pickler.clear_memo()
        pickler.dump(value)
        if self._fresh:
            raise pickle.PicklingError("the message introduces classes")

    # Models ------------------------------------------------------------------------------------

    def pack(self, model: Any) -> Any:
        """Return the contents of a model in place of it; any other value unchanged."""
        kind: Any = type(model)
        number = self._sent.get(kind)
        if number is None:
            number = self._number(kind) if _is_plain_model(kind) else None
            if number is None:
                return model
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
        model = _new(self.received(number))
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
            return self._pickled(error), described, trace
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

    # Classes that are sent once ----------------------------------------------------------------

    def _number(self, kind: Any) -> int | None:
        """Return the number of a class; None of anything else, and if there are too many."""
        known = self._sent.get(kind)
        if known is not None:
            return known
        if kind not in self._fresh:
            if not isinstance(kind, type) or len(self._sent) + len(self._fresh) >= MAX_CLASSES:
                return None
            loading = self._loading(kind)  # which may number the classes that it refers to
            self._fresh[kind] = len(self._sent) + len(self._fresh), *loading
        return int(self._fresh[kind][0])

    def _loading(self, found: Any) -> tuple[Any, Any, str | None]:
        """Return the arguments of `load` for a class or function."""
        if _has_import_path(found):
            return pickle.loads, pickle.dumps(found), None
        generic = getattr(found, "__pydantic_generic_metadata__", {})
        if generic.get("origin"):
            return _parametrized, self._pickled((generic["origin"], generic["args"])), None
        by_file = _in_file(found)
        if by_file is not None:
            return load_object, by_file, None
        return pickle.loads, *_by_value(found)

    def reference(self, found: Any) -> tuple[Any, ...]:
        """Return how a class or function without an import path is pickled."""
        number = self._number(found)
        if number is None:
            return load, self._loading(found)
        return recall, (self._peer, number)

    def introduce(self, number: int, *loading: Any) -> None:
        """Remember a class of the other end, or why it can't be loaded."""
        try:
            self._received[number] = load(*loading)
        except Exception as error:
            self._received[number] = error

    def received(self, number: int) -> Any:
        """Return the class that the other end has introduced by a number."""
        found = self._received[number]
        if isinstance(found, Exception):
            raise found
        return found


class _Introduction:
    """A message behind the classes that it introduces.

    These are kept even if the message can't be read.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __reduce__(self) -> Any:
        return _introduced, self._arguments


def _introduced(name: str, kinds: list[tuple[Any, ...]], data: bytes) -> Any:
    for kind in kinds:
        _codecs[name].introduce(*kind)
    return pickle.loads(data)


def recall(name: str, number: int) -> Any:
    """Return a class that was introduced before."""
    return _codecs[name].received(number)


def load(function: Any, data: Any, tracker: str | None) -> Any:
    """Return a class or a function of the other end."""
    if tracker is not None:
        from cloudpickle import cloudpickle

        # Loading it again would overwrite the class's attributes here by those of the other side.
        found = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
        if found is not None:
            return found
    return function(data)


def _parametrized(data: bytes) -> Any:
    origin, arguments = pickle.loads(data)
    return origin[arguments]


class _Pickler(pickle.Pickler):
    codec: Codec

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, (type, FunctionType)) and not _has_import_path(found):
            return self.codec.reference(found)
        return NotImplemented


@lru_cache(maxsize=1024)
def _has_import_path(found: Any) -> bool:
    module = found.__module__
    if module in (None, "__main__") or module.startswith(PREFIX):  # None: of `exec`
        return False
    # A class of `exec` is in builtins, too.
    return _is_named(found) or (module == "builtins" and "__module__" not in vars(found))


def _is_named(found: Any) -> bool:
    """Whether a class or function is what its name stands for."""
    here: Any = sys.modules.get(found.__module__)
    for part in found.__qualname__.split("."):
        here = getattr(here, part, None)
    return here is found


def _in_file(found: Any) -> str | None:
    """The ``file.py:name`` of what was loaded from a user's file."""
    if not (found.__module__ or "").startswith(PREFIX) or not _is_named(found):
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
