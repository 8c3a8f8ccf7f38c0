"""`Codec`: pickles what a pool and one of its workers send each other."""

from __future__ import annotations

import contextlib
import importlib
import io
import operator
import pickle
import sys
import traceback
from collections.abc import Iterable
from functools import cache, lru_cache
from types import FunctionType
from typing import Any

from pydantic import BaseModel

from guerdon._loading import PREFIX, load_object
from guerdon.errors import (
    EnvError,
    InvalidActionError,
    InvalidObservationError,
    MissingExtraError,
    WorkerError,
)
from guerdon.rubrics.failure import describe_failure

PROTOCOL = 5  # large arrays are written without a copy

# How many classes a connection names. More are sent by value each time.
MAX_CLASSES = 4096

_new, _set = object.__new__, object.__setattr__


# A call of a slot: the slot, the name of the runner's method, and its arguments. The last one of
# "reset" and "configure" is the configuration of the episode, or None. "ping" has no effect.
Call = tuple[int, str, tuple[Any, ...]]

# How a call of a slot ended: the slot, what it returned, what it raised, and the means of an
# episode that ended, which a curriculum needs.
Result = tuple[int, Any, "BaseException | None", Any]


class Codec:
    """Pickles the messages of one connection, for the other end.

    A class is sent as its name, which the other end loads once. One without an import path, such
    as that of a script or a notebook, is sent by value once, and its id is its name from then on.
    If it came from the other end, that gets its own class back. A model is sent as its contents,
    which takes half the time of pickling it.

    Example:
        >>> here, there = Codec(), Codec()
        >>> there.decode(here.encode({"column": 3}))
        {'column': 3}
    """

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}  # of classes that the other end knows
        self._fresh: dict[str, bytes] = {}  # classes that the next message has by value
        self._file = io.BytesIO()
        self._pickler = self.pickler(self._file)
        _found.clear()  # a module may have been reloaded since, in a notebook for example

    def encode(self, value: Any) -> bytes:
        """Pickle a value.

        Raises:
            MissingExtraError: It contains a class or a function that has no import path, and
                ``cloudpickle`` isn't installed.
            Exception: It can't be pickled.
        """
        return self._introducing(self._pickled(value))

    def _introducing(self, data: bytes) -> bytes:
        if self._fresh:
            data = pickle.dumps(_Introduction(self._fresh, data))
            self._fresh = {}
        return data

    def _pickled(self, value: Any) -> bytes:
        self._file.seek(0)
        self._file.truncate()
        self._pickler.clear_memo()
        self._pickler.dump(value)
        return self._file.getvalue()

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
            Exception: It can't be pickled, or it contains a class that `encode` has to introduce.
        """
        pickler.clear_memo()
        pickler.dump(value)
        if self._fresh:
            raise pickle.PicklingError("the message introduces classes")

    # Calls and results -------------------------------------------------------------------------

    def pack(self, model: Any) -> Any:
        """Return the contents of a model in place of it; any other value unchanged."""
        kind: Any = type(model)
        name = self._names.get(kind) or (self._name(kind) if _is_plain_model(kind) else None)
        if name is None:
            return model
        return (
            name,
            model.__dict__,
            model.__pydantic_fields_set__,
            model.__pydantic_extra__,
            model.__pydantic_private__,
        )

    def encode_calls(self, calls: Iterable[Call]) -> tuple[bytes, list[Result]]:
        """Return the calls, and the results of those whose arguments can't be pickled.

        Each has a pickle of its own, so that one that can't be read is an error of its slot.
        """
        encoded: list[tuple[int, str, bytes]] = []
        failed: list[Result] = []
        for slot, method, given in calls:
            try:
                encoded.append((slot, method, self._pickled([self.pack(each) for each in given])))
            except Exception as error:
                text = f"the arguments of {method} can't be sent to a worker: {error}"
                kind = InvalidActionError if method == "step" else EnvError
                failed.append((slot, None, kind(text), None))
        return self._introducing(pickle.dumps(encoded, PROTOCOL)), failed

    def decode_calls(self, data: bytes | memoryview) -> tuple[list[Call], list[Result]]:
        """Return the calls, and the results of those whose arguments can't be read."""
        calls: list[Call] = []
        failed: list[Result] = []
        for slot, method, given in pickle.loads(data):
            try:
                calls.append((slot, method, tuple(map(unpack, pickle.loads(given)))))
            except Exception as error:
                text = describe_failure(error, "the arguments can't be read in the worker")
                kind = InvalidActionError if method == "step" else EnvError
                failed.append((slot, None, kind(text), None))
        return calls, failed

    def pack_result(self, value: Any, error: BaseException | None, means: Any) -> Any:
        """Return a result in the form for `write`."""
        return self.pack(value), error and self.pack_error(error), means

    def encode_result(
        self, value: Any, error: BaseException | None, means: Any
    ) -> tuple[bytes, InvalidObservationError | None]:
        """Return a result, or the error that it can't be sent, and that error."""
        try:
            return self.encode(self.pack_result(value, error, means)), None
        except Exception as failure:
            text = describe_failure(failure, "the observation can't be sent by the worker")
            unsent = InvalidObservationError(text)
            return self.encode(self.pack_result(None, unsent, means)), unsent

    def read_result(self, slot: int, data: Any) -> Result:
        """Return a result from its pickle."""
        try:
            packed, error, means = pickle.loads(data)
            return slot, unpack(packed), error and self.unpack_error(*error), means
        except Exception as failure:
            text = describe_failure(failure, "the result of the worker can't be read")
            return slot, None, InvalidObservationError(text), None

    def pack_error(self, error: BaseException) -> tuple[bytes, str, str]:
        """Return an exception in the form for `write`; one that can't be pickled as its text."""
        data = b""
        with contextlib.suppress(Exception):
            data = self._pickled(error)
        return data, describe_failure(error), "".join(traceback.format_exception(error))

    def unpack_error(self, data: bytes, described: str, trace: str) -> BaseException:
        """Return the exception, or one that `describe_failure` describes by the same text.

        Its cause is the traceback of the worker, for logs.
        """
        error: Any = None
        # Unpickling fails if `__init__` takes other arguments than the message.
        with contextlib.suppress(Exception):
            error = pickle.loads(data)
        if error is None or describe_failure(error) != described:
            name, _, text = described.partition(": ")
            error = type(name, (EnvError,), {})(text)
        error.__cause__ = WorkerError(f"in the worker:\n{trace}")
        return error  # type: ignore[no-any-return]

    # Classes and functions ---------------------------------------------------------------------

    def _name(self, kind: Any) -> str | None:
        """Return the name of a class, which the next message introduces; None of too many."""
        name = self._names.get(kind)
        if name is None and len(self._names) < MAX_CLASSES:
            name = _name_of(kind)
            if name is None:
                data, name = _by_value(kind)
                assert name is not None
                self._fresh[name] = data
            self._names[kind] = name
        return name

    def reference(self, found: Any) -> tuple[Any, ...]:
        """Return how a class or function without an import path is pickled."""
        generic = getattr(found, "__pydantic_generic_metadata__", {})
        if generic.get("origin"):
            return operator.getitem, (generic["origin"], generic["args"])
        name = self._name(found) if isinstance(found, type) else _name_of(found)
        return (pickle.loads, _by_value(found)[:1]) if name is None else (find, (name,))


class _Pickler(pickle.Pickler):
    codec: Codec

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, (type, FunctionType)) and not _is_imported(_name_of(found)):
            return self.codec.reference(found)
        return NotImplemented


# The pickles of the classes that were sent to this process by value, and what `find` has found.
_introduced: dict[str, bytes] = {}
_found: dict[str, Any] = {}


class _Introduction:
    """A message behind the classes that it introduces, which are known even if it can't be read."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __reduce__(self) -> Any:
        return _introduce, self._arguments


def _introduce(classes: dict[str, bytes], data: bytes) -> Any:
    _introduced.update(classes)
    return pickle.loads(data)


def find(name: str) -> Any:
    """Return the class or the function of a name of the other end."""
    found = _found.get(name)
    if found is None:
        if name in _introduced:
            from cloudpickle import cloudpickle

            # Loading one of this process would overwrite its attributes by those of the other end.
            known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
            found = known.get(name) or pickle.loads(_introduced[name])
        elif ".py:" in name:
            found = load_object(name)
        else:  # `pkgutil.resolve_name` refuses modules such as env-v2
            module, _, path = name.partition(":")
            found = operator.attrgetter(path)(importlib.import_module(module))
        _found[name] = found
    return found


def unpack(packed: Any) -> Any:
    """Return the value that `Codec.pack` has packed."""
    if packed.__class__ is not tuple:
        return packed
    name, contents, fields_set, extra, private = packed
    model = _new(_found.get(name) or find(name))
    _set(model, "__dict__", contents)
    _set(model, "__pydantic_fields_set__", fields_set)
    _set(model, "__pydantic_extra__", extra)
    _set(model, "__pydantic_private__", private)
    return model


@lru_cache(maxsize=1024)
def _name_of(found: Any) -> str | None:
    """Return ``module:name``, ``file.py:name`` of a user's file, or None if it has no such name."""
    module = source = found.__module__ or "__main__"  # None: of `exec`
    here: Any = sys.modules.get(module)
    if module.startswith(PREFIX):
        source = getattr(here, "__file__", None)
    for part in found.__qualname__.split("."):
        here = getattr(here, part, None)
    # Some builtins don't have their name there. A class of `exec` is in builtins, too.
    is_builtin = module == "builtins" and "__module__" not in vars(found)
    is_named = here is found and module != "__main__"
    return f"{source}:{found.__qualname__}" if is_named or is_builtin else None


def _is_imported(name: str | None) -> bool:
    """Whether pickle itself sends the name."""
    return name is not None and ".py:" not in name


def _by_value(found: Any) -> tuple[bytes, str | None]:
    """Return the pickle of a class or function by value, and the id of a class."""
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
                name = _name_of(found)
                if name is not None and not _is_imported(name):
                    return find, (name,)
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
    if not issubclass(kind, BaseModel) or kind.__pydantic_generic_metadata__["origin"]:
        return False
    return all(getattr(kind, name, None) is getattr(BaseModel, name, None) for name in PICKLING)
