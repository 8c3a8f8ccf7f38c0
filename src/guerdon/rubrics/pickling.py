"""Pickling trees: functions and classes that can't be are named with the path of their rubric."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from guerdon._loading import PREFIX, load_module
from guerdon.errors import RubricDefinitionError
from guerdon.rubrics.state import unwrapped

# They pickle functions and classes by their code, not by their names.
BY_CODE = {"cloudpickle", "dill"}


def is_importable(thing: Any) -> bool:
    """Whether a function or a class is found under its name in its module, as in another process.

    Example:
        >>> is_importable(is_importable), is_importable(lambda: None)
        (True, False)
    """
    try:
        return operator.attrgetter(thing.__qualname__)(sys.modules[thing.__module__]) is thing
    except (AttributeError, KeyError):
        return False


class _File:
    """The module of a file; unpickled, it is loaded again."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __deepcopy__(self, memo: object) -> _File:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return load_module, (self.path,)


def files_of(*code: Any) -> list[Any]:
    """Return what loads the modules of functions and classes again that `load_object` loaded."""
    names = dict.fromkeys(str(unwrapped(each).__module__) for each in code)
    modules = [sys.modules.get(name) for name in names if name.startswith(PREFIX)]
    return [_File(each.__file__) for each in modules if each is not None and each.__file__]


def made_after(files: object, make: Callable[..., Any], *args: Any) -> Any:
    """Return ``make(*args)``; in a pickle, `files_of` come before the names that they define.

    Example:
        >>> made_after(files_of(int), int, "3")
        3
    """
    return make(*args)


class PickledState(dict[str, Any]):
    """The attributes of a rubric that is being copied or pickled.

    Args:
        rubric: The rubric.
        attributes: What its ``__getstate__`` returned.
    """

    def __init__(self, rubric: Any, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self._rubric = rubric

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Return the attributes as a plain dict.

        Raises:
            RubricDefinitionError: A function of the rubric, or the class of a child, is local.
        """
        code = [(self._rubric, each) for value in self.values() for each in _functions(value)]
        code += [(child, type(child)) for child in self._rubric._children.values()]
        for rubric, each in code:
            if not is_importable(each) and not _is_pickled_by_code():
                error = RubricDefinitionError(
                    f"{each.__qualname__} of {each.__module__} can't be pickled, because another "
                    "process doesn't find it under its name; define it with def or class at the "
                    "top of a module"
                )
                error.rubric_path = _path(rubric)
                raise error
        return made_after, (files_of(*(each for _, each in code)), dict, dict(self))


def _functions(value: Any) -> Iterator[Any]:
    """The functions in an attribute."""
    items = list(value.values()) if isinstance(value, dict) else value
    for each in items if isinstance(items, (list, tuple)) else (value,):
        function = unwrapped(each)
        if hasattr(function, "__rubric__") and not is_importable(function):  # a RewardFunction
            function = function.function
        if isinstance(function, FunctionType):
            yield function


def _path(rubric: Any) -> str:
    """The path of a rubric from the root of its tree."""
    root = rubric
    while parent := next(iter(root._parents.values()), None):
        root = parent
    return str(root._find_traits().paths.get(id(rubric), ""))


def _is_pickled_by_code() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if BY_CODE & set(frame.f_globals.get("__name__", "").split(".")):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
