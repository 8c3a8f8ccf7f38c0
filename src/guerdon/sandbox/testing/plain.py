"""Plain values: those that travel between the two processes, and what they are made of.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import builtins
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from functools import partial
from gc import get_referents
from importlib import import_module
from operator import index
from types import MappingProxyType, SimpleNamespace
from typing import Any

#: The method resolution order of a class, which the class can't override.
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

ATOMS = frozenset({type(None), bool, int, float, str})
SMALL = 1 << 63
#: The built-in exceptions.
ERRORS: dict[str, type[BaseException]] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
_BUILTINS = (
    "Ellipsis NotImplemented abs all any ascii bin bool bytearray bytes chr complex dict divmod "
    "float frozenset hash hex int len list max min oct ord pow range repr round set slice sorted "
    "str sum tuple"
)
#: What travels by its name, whoever sends it. The program can name nothing else in the tests'
#: process, where any function that it receives may call it.
NAMES: dict[str, Any] = ERRORS | {name: getattr(builtins, name) for name in _BUILTINS.split()}
NAMED = {id(value): name for name, value in reversed(NAMES.items())}  # OSError, not IOError

MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
#: The first of these that a class derives from is the class as which its objects travel.
BASES = (int, float, complex, str, bytes, bytearray, deque, list, tuple, dict, set, frozenset)


class CodecError(ValueError):
    """A message is invalid."""


def expect(condition: bool, fault: str) -> None:
    """Raise a `CodecError` if a condition of a valid message isn't met."""
    if not condition:
        raise CodecError(fault)


# Objects -----------------------------------------------------------------------------------------


def fields_of(kind: type) -> list[str] | None:
    """Return the fields of a class of namedtuples; None if it is something else."""
    fields = getattr(kind, "_fields", None)
    if type(fields) is not tuple:
        return None
    are_names = all(type(name) is str and name.isidentifier() for name in (kind.__name__, *fields))
    return list(fields) if are_names else None


# Values of the standard library ------------------------------------------------------------------


def _bounds(value: Any) -> list[Any]:
    return [value.start, value.stop, value.step]


def _text(value: Any) -> list[Any]:
    return [str(value)]


def _markup(value: Any) -> list[Any]:
    from xml.etree import ElementTree

    return [ElementTree.tostring(value, "unicode")]


def _moment(value: Any) -> list[Any] | None:
    zone = value.tzinfo
    if zone is not None and type(zone).__module__ not in ("datetime", "zoneinfo"):
        return None
    return [value.replace(tzinfo=None).isoformat(), value.fold, zone]


def _viewed(value: Any) -> list[Any]:
    """Return the dictionary that is viewed, which keeps its identity: a view changes with it."""
    [found] = get_referents(value)
    return [found if type(found) in MAPPINGS else dict(found)]


#: By module and name of a class, what its values are made of; None if such a value doesn't travel.
_PARTS: dict[tuple[str, str], Callable[[Any], list[Any] | None]] = {
    ("builtins", "complex"): lambda value: [value.real, value.imag],
    ("builtins", "range"): _bounds,
    ("builtins", "slice"): _bounds,
    ("datetime", "date"): lambda value: [value.isoformat()],
    ("datetime", "datetime"): _moment,
    ("datetime", "time"): _moment,
    ("datetime", "timedelta"): lambda value: [value.days, value.seconds, value.microseconds],
    ("datetime", "timezone"): lambda value: list(value.__getinitargs__()),
    ("decimal", "Decimal"): _text,
    ("fractions", "Fraction"): lambda value: [value.numerator, value.denominator],
    ("ipaddress", "IPv4Address"): _text,
    ("ipaddress", "IPv4Network"): _text,
    ("ipaddress", "IPv6Address"): _text,
    ("ipaddress", "IPv6Network"): _text,
    ("pathlib", "PosixPath"): _text,
    ("pathlib", "PurePosixPath"): _text,
    ("pathlib", "PureWindowsPath"): _text,
    ("uuid", "UUID"): _text,
    ("xml", "Element"): _markup,
    ("zoneinfo", "ZoneInfo"): _text,
}
#: Those of which the tests receive copies. What the tests pass to the program stays theirs.
_COPIED: dict[tuple[str, str], Callable[[Any], list[Any] | None]] = {
    ("array", "array"): lambda value: [value.typecode, value.tobytes()],
    ("builtins", "dict_items"): _viewed,
    ("builtins", "dict_keys"): _viewed,
    ("builtins", "dict_values"): _viewed,
    ("builtins", "mappingproxy"): _viewed,
    ("types", "SimpleNamespace"): lambda value: [tuple(vars(value)), *vars(value).values()],
}
_MODULES = {name: module for module, name in (*_PARTS, *_COPIED)}


def parts_of(value: Any, kind: type, *, copies: bool) -> tuple[str, list[Any]] | None:
    """Return the tag of a value of the standard library, and what it is made of.

    Args:
        value: The value.
        kind: The class as which it travels.
        copies: Whether values that can be changed travel as copies.
    """
    where = str(kind.__module__).partition(".")[0], kind.__name__
    parts = _PARTS.get(where) or (_COPIED.get(where) if copies else None)
    found = None if parts is None else parts(value)
    return None if found is None else (kind.__name__, found)


def _construct(name: str, parts: list[Any]) -> Any:
    """Return a value that is made of plain parts, by its class."""
    for part in parts:
        kind = type(part)
        is_plain = kind in ATOMS or kind is bytes or kind.__module__ in ("datetime", "zoneinfo")
        expect(is_plain or name == "slice", "a value of parts that aren't plain")
    if name == "Element":
        return import_module("xml.etree.ElementTree").fromstring(*parts)
    made: Any = getattr(import_module(_MODULES[name]), name)
    if name == "Fraction":
        return made(*map(index, parts))
    if name in ("date", "datetime", "time"):
        value = made.fromisoformat(parts[0])
        return value.replace(fold=parts[1], tzinfo=parts[2]) if any(parts[1:]) else value
    return made(*parts)


def _view(read: Callable[[Any], Any], viewed: list[Any]) -> Any:
    expect(type(viewed[0]) in MAPPINGS, "a value that is no mapping")
    return read(*viewed)


def _namespace(parts: list[Any]) -> Any:
    names, *values = parts
    expect(type(names) is tuple, "a namespace without names")
    return SimpleNamespace(**dict(zip(names, values, strict=True)))


def _namedtuple(parts: list[Any]) -> Any:
    """Return a namedtuple of a class with the same name and fields."""
    name, fields, *values = parts
    expect(type(name) is str and type(fields) is tuple, "a namedtuple without fields")
    expect(len(values) == len(fields) < 100, "a namedtuple of another length")
    if any(type(each) is not str or each in ("count", "index") for each in fields):
        return tuple(values)  # a field would replace a method
    key = (name, fields)
    if key not in _namedtuples:
        _namedtuples[key] = namedtuple(name, fields)
    return tuple.__new__(_namedtuples[key], values)


_namedtuples: dict[Any, Any] = {}
#: What makes a value of a list of values, by the tag of its node.
COMPOSED: dict[str, Callable[[list[Any]], Any]] = {
    **{name: lambda parts, name=name: _construct(name, parts) for name in _MODULES},  # type: ignore[misc]
    "SimpleNamespace": _namespace,
    "dict_items": partial(_view, dict.items),
    "dict_keys": partial(_view, dict.keys),
    "dict_values": partial(_view, dict.values),
    "frozenset": frozenset,
    "mappingproxy": partial(_view, MappingProxyType),
    "namedtuple": _namedtuple,
    "tuple": tuple,
}
