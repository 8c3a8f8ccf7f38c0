"""The configuration of a tree: `state_dict`, its fingerprint and its description."""

from __future__ import annotations

import collections
import contextlib
import copy
import enum
import functools
import hashlib
import inspect
import json
import math
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from guerdon._loading import file_digest
from guerdon.errors import RubricError, StateError
from guerdon.rubrics.source import own_source, source_in_file

# How many values one attribute may contain to count as configuration.
MAX_VALUES = 100_000

# Attributes that describe a rubric or its last score, and configure nothing.
NO_STATE = {"last_score", "score_range", "reads", "state_names", "tunable"}

# The attribute with digests of what else a rubric depends on: the services of a pipeline.
MADE_WITH = "_made_with"

# How deep attributes may be nested in each other.
MAX_DEPTH = 100


Value = TypeVar("Value")


class Checked(Generic[Value]):
    """An attribute that is validated whenever it is set.

    Args:
        check: Returns the value to store, from the attribute's name and a value, or raises.
        optional: Whether None is accepted, without a check.
        limits_of: Returns further arguments of `check` that depend on the rubric.
        **limits: Further arguments of `check`.
    """

    def __init__(
        self,
        check: Callable[..., Value],
        *,
        optional: bool = False,
        limits_of: Callable[[Any], Mapping[str, Any]] | None = None,
        **limits: Any,
    ) -> None:
        self._check = functools.partial(check, **limits)
        self._optional = optional
        self._limits_of = limits_of

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, rubric: Any, value: Any) -> None:
        if value is not None or not self._optional:
            limits = {} if self._limits_of is None else self._limits_of(rubric)
            value = self._check(self._name, value, **limits)
        rubric.__dict__[self._name] = value

    if TYPE_CHECKING:  # without __get__, Python reads the instance's dict at full speed

        def __get__(self, rubric: Any, owner: type) -> Value: ...


def own_state(rubric: Any) -> dict[str, Any]:
    """Return a rubric's configured attributes that fit JSON, and those in `state_names`."""
    values = configured(rubric).items()
    state = {name: copy.deepcopy(value) for name, value in values if fits_json(value)}
    for kind in reversed(type(rubric).__mro__):
        for name in kind.__dict__.get("state_names", ()):
            state[name] = copy.deepcopy(getattr(rubric, name))
    return state


@dataclass(frozen=True, slots=True)
class Digest:
    """The text of a value that JSON can't represent, as it was when the text was made."""

    text: str


def kept(value: Any) -> Any:
    """Return what is kept of an attribute: a copy of data, or a digest of what may change."""
    if fits_json(value):
        return copy.deepcopy(value)
    if isinstance(value, type) or _is_ours(type(value).__module__):
        return value
    try:
        return Digest(_Reader().value(value))
    except Exception:  # nested too deep, or of a class that raises anything
        return value


def first_values(rubric: Any) -> dict[str, Any]:
    """Return the values of the public attributes of a rubric that is used for the first time."""
    declared, children = rubric._configures, rubric._children
    return {
        name: value if name in declared else kept(value)
        for name, value in rubric.__dict__.items()
        if name[:1] != "_" and name not in children
    }


def configured(rubric: Any) -> dict[str, Any]:
    """Return the public attributes that configure a rubric, with their values.

    Declared names have their present values. All others have those that they had when the rubric
    was first called or reset, or that were assigned since, except while it was evaluated or reset:
    what changes then is the state of an episode.
    """
    present, hidden = rubric.__dict__, NO_STATE | rubric._children.keys()
    first = present.get("_first")
    return {
        name: present.get(name) if name in rubric._configures else value
        for name, value in (present if first is None else first).items()
        if name[:1] != "_" and name not in hidden
    }


# The methods of a rubric that change the state of an episode, and the modules that call them.
_IN_EPISODES = (
    *("forward", "forward_async", "__call__", "score_trajectory"),
    *("reset", "reset_async", "compute_step_rewards"),
)
_EVALUATORS = ("guerdon.rubrics.calling", "guerdon.rubrics.evaluation")


def is_evaluated(rubric: Any) -> bool:
    """Whether an evaluation or a reset of a rubric, or of its class, calls this, or a helper."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if frame.f_globals.get("__name__") in _EVALUATORS:
            return True
        if code.co_name in _IN_EPISODES:
            owner = frame.f_locals.get(next(iter(code.co_varnames), ""))
            if owner is rubric or type(owner) is rubric:
                return True
        frame = frame.f_back
    return False


def configuring_names(kind: type[Any]) -> frozenset[str]:
    """Return the attributes that a class declares as configuration."""
    return frozenset(
        name
        for each in kind.__mro__
        for what in ("state_names", "tunable")
        for name in each.__dict__.get(what, ())
        if name not in kind._measured
    ) | {"score_range"}


def fits_json(value: Any) -> bool:
    """Whether JSON can represent a value and return it unchanged (except for tuples).

    A value that contains itself, or more than `MAX_VALUES` values, doesn't fit.
    """
    waiting = [value]
    seen = 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > MAX_VALUES:
            return False
        if isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            waiting.extend(item.values())
        elif isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif not (item is None or isinstance(item, (str, int))) or isinstance(item, enum.Enum):
            return False
    return True


def load_state_dict(rubric: Any, state: Mapping[str, Any], strict: bool) -> None:
    """See `Rubric.load_state_dict`."""
    if not isinstance(state, Mapping):
        raise StateError(
            f"a state must be a mapping of names to values, not {type(state).__name__}"
        )
    before = rubric.state_dict()
    missing = [key for key in before if key not in state]
    unexpected = [key for key in state if key not in before]
    if strict and (missing or unexpected):
        raise StateError(
            f"the state doesn't fit {type(rubric).__name__}: "
            f"missing {missing}, unexpected {unexpected}; strict=False loads those that fit",
            missing=missing, unexpected=unexpected,
        )  # fmt: skip
    fitting = {key: value for key, value in state.items() if key in before}
    for key, value in fitting.items():
        if not fits_json(value):
            raise StateError(f"{key!r} is {value!r:.80}; JSON can't represent it")
    try:
        _load(rubric, fitting)
    except Exception as error:
        _load(rubric, before)
        raise StateError(f"nothing was loaded: {error}") from error


def _load(rubric: Any, state: Mapping[str, Any]) -> None:
    below: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        name, dot, rest = key.partition(".")
        if dot and name in rubric._children:
            below.setdefault(name, {})[rest] = value
        else:
            setattr(rubric, key, _like(getattr(rubric, key, None), copy.deepcopy(value)))
            if key in (rubric.__dict__.get("_first") or ()):  # also of what `forward` changes
                rubric.__dict__["_first"][key] = kept(getattr(rubric, key))
    for name, part in below.items():
        child = rubric._children[name]
        if child._overrides_loading:
            child.load_state_dict(part)
        else:
            _load(child, part)


def _like(old: Any, new: Any) -> Any:
    """A list that replaces a tuple becomes one: JSON has no tuples."""
    return tuple(new) if isinstance(old, tuple) and isinstance(new, list) else new


# Fingerprints ------------------------------------------------------------------------------------


def fingerprint(rubric: Any) -> str:
    """See `Rubric.fingerprint`."""
    return _digest(_Reader().tree("", rubric))


def fingerprint_of(*values: Any) -> str:
    """Return a digest of functions, with their source, and of values.

    Example:
        >>> fingerprint_of("limit", 5) == fingerprint_of("limit", 5) != fingerprint_of("limit", 6)
        True
    """
    reader = _Reader()
    return _digest([reader.value(value) for value in values])


class FingerprintParts:
    """The parts of a tree's fingerprint, with which it is taken again for other weights.

    Example:
        >>> from guerdon import RubricComposer, ValidJson
        >>> composer = RubricComposer({"json": ValidJson()}, {"json": 1.0})
        >>> parts = FingerprintParts(composer, "weights")
        >>> composer.update_weights({"json": 2.0})
        >>> parts.digest(weights={"json": 2.0}) == composer.fingerprint()
        True

    Args:
        rubric: The tree.
        *names: The names in the state of its root whose values may be replaced.
    """

    def __init__(self, rubric: Any, *names: str) -> None:
        self._parts = list(_Reader().tree("", rubric))
        state = own_state(rubric) if names else {}
        self._places = {name: self._parts.index(_state_part(name, state[name])) for name in names}

    def digest(self, **state: Any) -> str:
        """Return the fingerprint of the tree with other values in the state of its root."""
        parts = list(self._parts)
        for name, value in state.items():
            parts[self._places[name]] = _state_part(name, value)
        return _digest(parts)


def _state_part(name: str, value: Any) -> str:
    return f"{name}={json.dumps(value, sort_keys=True)}"


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


class _Reader:
    """Turns the parts of a tree into text that is the same in every process.

    It contains no memory addresses, hash order or file locations. Each object is read once.
    """

    def __init__(self) -> None:
        self._read: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no identity is used twice
        self._depth = 0

    def tree(self, path: str, rubric: Any) -> Iterator[str]:
        """The parts of a rubric and of all below it."""
        yield path
        described = rubric._described()
        # A function is also an attribute, whose value is that from before it was called.
        if described is not type(rubric) and described is not rubric.__dict__.get("forward"):
            yield self.value(described)
        yield from rubric.__dict__.get(MADE_WITH, ())
        yield from sorted(rubric._at_end)
        for kind in type(rubric).__mro__:
            yield self.value(kind)
        for name, value in sorted(own_state(rubric).items()):
            if name not in rubric._measured:
                yield f"{name}={self.value(value)}"
        for name, value in sorted(configured(rubric).items()):
            if not fits_json(value):
                # Read by itself: no other attribute makes a difference.
                text = kept(value) if self._depth == 0 else value
                yield f"{name}={text.text if isinstance(text, Digest) else self.value(text)}"
        for name, child in rubric._children.items():
            yield from self.tree(f"{path}.{name}", child)

    def value(self, value: Any) -> str:
        """The text of any value; of an unknown object, its type."""
        if fits_json(value):
            return json.dumps(value, sort_keys=True)
        if id(value) in self._read:
            return self._read[id(value)]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RubricError(
                f"no fingerprint: attributes are nested more than {MAX_DEPTH} levels deep"
            )
        self._read[id(value)] = "…"  # while it is being read, in case it contains itself
        self._kept.append(value)
        parts = self._data(value) or self._code(value) or self._object(value)
        self._depth -= 1
        digest = self._read[id(value)] = _digest(parts)
        return digest

    def _data(self, value: Any) -> list[str] | None:
        kind = type(value).__qualname__
        if isinstance(value, enum.Enum):
            return [self.value(type(value)), value.name, self.value(value.value)]
        if isinstance(value, (complex, bytes, int, float, str)):
            return [kind, repr(value)]
        if isinstance(value, pathlib.PurePath):
            return [value.as_posix()]
        if isinstance(value, re.Pattern):
            return ["re", str(value.flags), repr(value.pattern)]
        if isinstance(value, (list, tuple, collections.deque)):
            return [kind, *map(self.value, value)]
        if isinstance(value, Mapping):  # sorted by the keys' text
            items = sorted(value.items(), key=lambda item: _Reader().value(item[0]))
            return [kind, *(self.value(part) for item in items for part in item)]
        if isinstance(value, (set, frozenset)):
            return [kind, *sorted(_Reader().value(item) for item in value)]
        return None

    def _code(self, value: Any) -> list[str] | None:
        """The parts of something that runs."""
        if isinstance(value, functools.partial):
            return ["partial", *map(self.value, (value.func, value.args, value.keywords))]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._kind(value)
        if isinstance(value, CodeType):
            constants = map(self.value, value.co_consts)
            return [value.co_code.hex(), repr(value.co_names), *constants]
        if hasattr(value, "__wrapped__") and not _is_ours(type(value).__module__):  # a lru_cache
            return [type(value).__qualname__, self.value(value.__wrapped__)]
        if inspect.isroutine(value):  # a method, or from C
            owner = getattr(value, "__self__", None)
            bound = None if inspect.ismodule(owner) else owner
            function = getattr(value, "__func__", None)
            return [value.__qualname__, self.value(function), self.value(bound)]
        return None

    def _object(self, value: Any) -> list[str]:
        kind = type(value)
        parts = [self.value(kind)]
        if callable(getattr(value, "tobytes", None)):  # an array
            shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
            return [*parts, repr(shape), str(dtype), hashlib.sha256(value.tobytes()).hexdigest()]
        if hasattr(value, "_find_traits"):  # a rubric that isn't a child
            return [*parts, *self.tree("", value)]
        ours = _is_ours(kind.__module__)
        if _is_value(kind):
            with contextlib.suppress(TypeError):  # of a view of a dict
                return [*parts, self.value(list(value.__reduce_ex__(2)))]
        if not ours and not _is_own(kind.__module__):  # as of loggers, only the name
            return [*parts, str(getattr(value, "name", ""))]
        names = {name for each in kind.__mro__ for name in _slots(each) if hasattr(value, name)}
        names |= set(getattr(value, "__dict__", ()))
        if ours:  # the others are caches, locks and the like
            names = {name for name in names if not name.startswith("_")}
        return [*parts, *(f"{name}={self.value(getattr(value, name))}" for name in sorted(names))]

    def _kind(self, kind: type) -> list[str]:
        """A class: its source, and the values in its functions."""
        own = _is_ours(kind.__module__)
        if own or not _is_own(kind.__module__):
            return [kind.__qualname__, kind.__module__, _module(kind.__module__) if own else ""]
        parts = [kind.__qualname__, source_in_file(kind) or own_source(kind)]
        # What instances share and change, such as a list, is state; the source has how it begins.
        shared = (list, dict) if hasattr(kind, "_find_traits") else ()
        begun = getattr(kind, "_begun", {})
        for name, member in sorted({**vars(kind), **begun}.items()):
            parts += [self.value(function) for function in _functions_of(member)]
            if name.startswith("__") or callable(member) or isinstance(member, shared):
                continue
            if fits_json(member):
                parts.append(f"{name}={self.value(member)}")
        return parts

    def _function(self, function: FunctionType) -> list[str]:
        """A function: its source, its defaults and the values it closes over."""
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # not filled yet
                cells.append(None)
        return [
            function.__qualname__,
            # Of its code: inspect would look through decorators to what they wrap.
            own_source(function.__code__) or self.value(function.__code__),
            source_in_file(function) if _is_own(function.__module__) else "",
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            # A class that is closed over is the one that is being read, for super().
            *(self.value(cell) for cell in cells if not isinstance(cell, type)),
        ]


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _functions_of(member: Any) -> Iterator[FunctionType]:
    """The functions behind a member of a class."""
    if isinstance(member, property):
        found = [member.fget, member.fset, member.fdel]
    else:
        found = [getattr(member, "__func__", member)]  # static and class methods
    for function in found:
        if isinstance(function, FunctionType):
            yield function


@functools.cache
def _module(name: str) -> str:
    """A digest of a module's file, with helpers and constants; empty without a file."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None or not pathlib.Path(file).is_file():
        return ""
    return file_digest(pathlib.Path(file).read_bytes())


@functools.cache
def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "guerdon"


def _is_own(name: str) -> bool:
    """Whether a module is the user's own: not of Python's library, and not installed."""
    if name.partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or not {"site-packages", "dist-packages"} & set(pathlib.Path(file).parts)


def _is_value(kind: Any) -> bool:
    """Whether objects of a type of Python's library are compared by value, as dates are."""
    is_value = kind.__eq__ is not object.__eq__ or kind.__module__ == "operator"
    return is_value and kind.__module__.partition(".")[0] in sys.stdlib_module_names


# Descriptions ------------------------------------------------------------------------------------


def describe(rubric: Any, path: str = "", parent: Any | None = None) -> Iterator[dict[str, Any]]:
    """Describe each rubric of a tree, depth first, for ``guerdon tree`` and clients."""
    name = path.rpartition(".")[2]
    needs = [parent._needs(name)] if parent is not None else []
    if rubric._is_trajectory:
        needs.append("the whole episode")
    if parent is not None and parent._dispatches:
        needs.append(f"its parent choosing {name!r}")
    declared = rubric._range()
    yield {
        "path": path,
        "rubric": rubric._title(),
        "measures": _first_line(rubric._described()),
        "range": list(declared) if declared is not None else None,
        "weight": parent._weight_of(name) if parent is not None else None,
        "depends_on": [need for need in (*needs, *rubric.reads) if need],
        "async": rubric._find_traits().is_async,
    }
    for child_name, child in rubric.named_children():
        yield from describe(child, f"{path}.{child_name}" if path else child_name, rubric)


def classes_of(rubric: Any) -> dict[str, str]:
    """Return the names of the classes below a rubric by path; a shared one has all its paths."""
    return {node["path"]: node["rubric"] for node in describe(rubric) if node["path"]}


def _first_line(thing: object) -> str | None:
    doc = getattr(unwrapped(thing), "__doc__", None)
    return inspect.cleandoc(doc).partition("\n")[0] if doc else None


def unwrapped(function: Any) -> Any:
    """The function behind any number of `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function
