"""The plain values that travel: which there are, and how those of the standard library are told.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

import builtins
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from types import MappingProxyType, MemberDescriptorType, SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "ATOMS",
    "BASES",
    "CHANGEABLE",
    "CodecError",
    "EMPTY",
    "ERRORS",
    "HELD",
    "MAKERS",
    "MAPPINGS",
    "NAMED",
    "NAMES",
    "PATHS",
    "SEQUENCES",
    "SMALL",
    "attributes",
    "contents",
    "error_name",
    "expect",
    "fields_of",
    "is_data",
    "is_open",
    "mro_of",
    "refill",
    "state",
    "stated",
]

#: The classes that a class derives from, whatever it says of itself.
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

PATHS = frozenset({"PosixPath", "PurePosixPath", "PureWindowsPath"})
ATOMS = frozenset({type(None), bool, int, float, str})
SMALL = 1 << 63
#: The built-in exceptions.
ERRORS: dict[str, type[BaseException]] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
_PLAIN = (
    "abs all any ascii bin bool bytearray bytes chr complex dict divmod float frozenset hash hex "
    "int len list max min oct ord pow range repr round set slice sorted str sum tuple"
)
#: The types and functions that travel by their names, whoever sends them. The program names no
#: others in the tests' process, where any function that it is given may call them for it.
NAMES: dict[str, Any] = ERRORS | {name: getattr(builtins, name) for name in _PLAIN.split()}
NAMED = {id(value): name for name, value in reversed(NAMES.items())}  # OSError, not IOError

SEQUENCES: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
}
MAPPINGS: dict[type, str] = {
    dict: "dict",
    OrderedDict: "ordereddict",
    Counter: "counter",
    defaultdict: "defaultdict",
}
EMPTY: dict[str, Callable[[], Any]] = {
    "list": list,
    "set": set,
    "dict": dict,
    "bytearray": bytearray,
    "deque": deque,
    "ordereddict": OrderedDict,
    "counter": Counter,
    "defaultdict": defaultdict,
}
CHANGEABLE = (list, set, dict, bytearray, deque)
#: What a value is taken for that is of a class of its own; the first that fits.
BASES = (int, float, complex, str, bytes, bytearray, deque, list, tuple, dict, set, frozenset)


class CodecError(ValueError):
    """What came in is no message."""


def error_name(kind: type) -> str | None:
    """The name of a built-in exception that may travel as itself."""
    name = NAMED.get(id(kind))
    return name if name is not None and issubclass(kind, Exception) else None


def is_data(kind: type, name: Any) -> bool:
    """Whether a public attribute of a class's objects is but data: no method, no property."""
    if type(name) is not str or not name.isidentifier() or name.startswith("_"):
        return False
    own = next((vars(each)[name] for each in mro_of(kind) if name in vars(each)), None)
    if type(own) is MemberDescriptorType:
        return True
    return not callable(own) and not hasattr(type(own), "__get__")


def attributes(value: Any) -> dict[str, Any]:
    """What an object of a plain class holds, in slots too."""
    found: dict[str, Any] = {}
    for kind in mro_of(type(value))[:-1]:
        for name, own in vars(kind).items():
            if type(own) is MemberDescriptorType:
                try:
                    found[name] = own.__get__(value)
                except AttributeError:
                    continue  # it isn't set
    try:
        found |= object.__getattribute__(value, "__dict__")
    except AttributeError:
        return found
    return found


def fields_of(kind: type) -> list[str] | None:
    """The fields of a class of namedtuples."""
    fields = getattr(kind, "_fields", None)
    names = fields if type(fields) is tuple else ("",)
    fit = all(type(name) is str and name.isidentifier() for name in (kind.__name__, *names))
    return list(names) if fit else None


def is_open(value: Any) -> bool:
    """Whether an object is all in its public attributes."""
    return not any(name.startswith("_") for name in attributes(value))


def state(value: Any) -> dict[str, Any]:
    """What of an object travels."""
    kind = type(value)
    return {name: item for name, item in attributes(value).items() if is_data(kind, name)}


def contents(value: Any) -> Any:
    """What stands in a container now, to be compared later."""
    if not isinstance(value, CHANGEABLE):
        value = state(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]
    return list(value)


def refill(value: Any, new: Any) -> None:
    """Put what stands in one container into another, which stays the object that it is."""
    if isinstance(value, bytearray):
        bytearray.__setitem__(value, slice(None), new)
    elif isinstance(value, list):
        list.__setitem__(value, slice(None), new)
    elif isinstance(value, deque):
        deque.clear(value)
        deque.extend(value, new)
    elif isinstance(value, set):
        set.clear(value)
        set.update(value, new)
    elif not isinstance(value, dict):
        expect(all(is_data(type(value), name) for name in new), "what is no data")
        for name in state(value).keys() - new.keys():
            object.__delattr__(value, name)
        for name, item in new.items():
            object.__setattr__(value, name, item)
    else:
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        kind.clear(value)
        for key, item in dict.items(new):
            kind.__setitem__(value, key, item)


def expect(held: bool, fault: str) -> None:
    """Refuse what came in, where something doesn't hold of it."""
    if not held:
        raise CodecError(fault)


def stated(value: Any, kind: type) -> list[Any] | None:
    """The node of a value of the standard library that a text or a few numbers tell of."""
    where = (kind.__module__, kind.__name__)
    if where == ("decimal", "Decimal") or where == ("uuid", "UUID"):
        return [kind.__name__, str(value)]
    if where == ("fractions", "Fraction"):
        return ["Fraction", hex(value.numerator), hex(value.denominator)]
    if where[1] in PATHS and str(where[0]).startswith("pathlib"):
        return ["path", where[1], str(value)]
    if where == ("datetime", "timezone"):
        offset, *name = value.__getinitargs__()
        return ["timezone", offset.days, offset.seconds, offset.microseconds, *name]
    if where == ("datetime", "timedelta"):
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if where == ("datetime", "date"):
        return ["date", value.isoformat()]
    if where in (("datetime", "datetime"), ("datetime", "time")):
        zone = value.tzinfo
        if zone is None or type(zone).__module__ == "datetime":
            return [kind.__name__, value.isoformat(), value.fold]
    return None


def _whole(text: str) -> int:
    return int(text, 16)


def _complex(real: Any, imaginary: Any) -> complex:
    expect(type(real) is float and type(imaginary) is float, "no complex number")
    return complex(real, imaginary)


def _fraction(above: str, below: str) -> Any:
    from fractions import Fraction

    return Fraction(_whole(above), _whole(below))


def _decimal(text: str) -> Any:
    from decimal import Decimal, InvalidOperation

    expect(type(text) is str, "no decimal")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise CodecError("no decimal") from None


def _uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(text)


def _date(text: str) -> Any:
    from datetime import date

    return date.fromisoformat(text)


def _datetime(text: str, fold: int) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text).replace(fold=fold)


def _time(text: str, fold: int) -> Any:
    from datetime import time

    return time.fromisoformat(text).replace(fold=fold)


def _timedelta(days: int, seconds: int, microseconds: int) -> Any:
    from datetime import timedelta

    return timedelta(days, seconds, microseconds)


def _timezone(days: int, seconds: int, microseconds: int, *name: str) -> Any:
    from datetime import timezone

    return timezone(_timedelta(days, seconds, microseconds), *name)


def _array(code: str, text: str) -> Any:
    from array import array

    made = array(code)
    made.frombytes(bytes.fromhex(text))
    return made


def _path(name: str, text: str) -> Any:
    import pathlib

    expect(name in PATHS and type(text) is str, "no path")
    return getattr(pathlib, name)(text)


def _chained(maps: list[Any]) -> Any:
    expect(all(isinstance(each, dict) for each in maps), "no mappings")
    return ChainMap(*maps)


def _proxied(held: list[Any]) -> Any:
    expect(len(held) == 1 and isinstance(held[0], dict), "no mapping")
    return MappingProxyType(held[0])


def _namespace(names: list[Any], values: list[Any]) -> Any:
    return SimpleNamespace(**dict(zip(names, values, strict=True)))


def _named(name: Any, fields: Any, items: list[Any]) -> Any:
    """A namedtuple like the one of the other side; what a tuple does itself, no field does."""
    expect(len(name) == 1 and len(items) == len(fields) < 100, "no namedtuple")
    if any(type(each) is not str or each in ("count", "index") for each in fields):
        return tuple(items)
    key = (name[0], *fields)
    if key not in _tuples:
        _tuples[key] = namedtuple(name[0], fields)
    return tuple.__new__(_tuples[key], items)


_tuples: dict[Any, Any] = {}
#: What is made of lists of values.
HELD: dict[str, Callable[..., Any]] = {
    "keys": lambda items: dict.fromkeys(items).keys(),
    "items": lambda items: dict(items).items(),
    "values": lambda items: dict(enumerate(items)).values(),
    "chainmap": _chained,
    "mappingproxy": _proxied,
    "namespace": _namespace,
    "named": _named,
}
MAKERS: dict[str, Callable[..., Any]] = {
    "int": _whole,
    "str": lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "bytes": lambda text: bytes.fromhex(text),
    "complex": _complex,
    "constant": {"Ellipsis": ..., "NotImplemented": NotImplemented}.__getitem__,
    "Fraction": _fraction,
    "Decimal": _decimal,
    "UUID": _uuid,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "timedelta": _timedelta,
    "timezone": _timezone,
    "array": _array,
    "path": _path,
    "memoryview": lambda text: memoryview(bytes.fromhex(text)),
}
