"""Rubrics by name: registered in code, by entry points of other packages, or by their path."""

from __future__ import annotations

import logging
import re
import sys
import traceback
import typing
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from guerdon._loading import is_installed, load_object, module_in, object_in, split_spec
from guerdon._registry import Registry
from guerdon._validation import did_you_mean, shown
from guerdon.errors import InvalidArgumentError, LoadError, RewardConfigError
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric

__all__ = ["RubricRegistry", "rubric_registry"]

logger = logging.getLogger("guerdon.config")

# The ready-made rubrics that can be built from a config.
READY_MADE = (
    "CallBudget", "CalledTool", "ChoiceAnswer", "ExactMatch", "LLMJudge", "LengthBounds",
    "NumericAnswer", "PythonCompiles", "RegexMatch", "RepetitionBounds", "StateMatches",
    "ToolCost", "ToolErrors", "ToxicityRubric", "ValidJson",
)  # fmt: skip


# OpenEnv's rubrics, whose names ours have.
_OPENENV = re.compile(r"openenv(\.core)?\.rubrics(\.\w+)*[.:](?P<name>\w+)")


class RubricRegistry(Registry[Any]):
    """Rubric classes and functions by name.

    The entry points ``guerdon.rubrics`` of installed packages are found without being registered.

    Example:
        >>> from guerdon.config import RubricRegistry
        >>> registry = RubricRegistry()
        >>> registry.register("polite", lambda action, observation: float("please" in action))
        >>> registry.resolve("polite")("please come", None)
        1.0
        >>> registry.resolve("polit")
        Traceback (most recent call last):
        guerdon.errors.RewardConfigError: there is no rubric 'polit'; did you mean 'polite'?
    """

    def __init__(self) -> None:
        super().__init__("rubric", "guerdon.rubrics", error=RewardConfigError, check=_check)
        self._renamed: set[str] = set()  # the names of past warnings

    def resolve(self, name: str, *, folder: str | Path | None = None) -> Any:
        """Return the class, the function or the rubric of a name.

        Of Python and of installed packages a path may name rubrics and reward functions only: any
        other function would be called with what a file contains. An entry point may name it. A
        rubric of OpenEnv, as ``openenv.rubrics.LLMJudge``, is ours of that name, with one warning.

        Args:
            name: A registered name; that of an entry point; a dotted path, as
                ``package.module.Class``; ``module:name``, or ``file.py:name``.
            folder: The folder of such a file, and of a module that is neither in the working
                directory nor installed; None is the working directory alone.

        Raises:
            RewardConfigError: There is nothing of that name, it can't be imported, or it is not
                accepted.
        """
        if name in self or not set(name) & {":", "."}:
            found = self[name]
            return load_object(_spec_of(found, (), None)) if isinstance(found, str) else found
        _refuse_python(name)
        spec = name = self._ours(name)
        if ":" not in name:
            spec = _spec_of(name, self.names(), folder)
        elif name.rpartition(":")[0].endswith(".py") and folder is not None:
            spec = str(Path(folder) / name)
        try:
            return _accepted(name, spec)
        except LoadError as error:
            raise RewardConfigError(f"{error}{_line_of(error)}") from error

    def _ours(self, name: str) -> str:
        """The path of our rubric, for that of OpenEnv."""
        match = _OPENENV.fullmatch(name)
        if match is None:
            return name
        ours = f"guerdon.rubrics.{match['name']}"
        if name not in self._renamed:
            self._renamed.add(name)
            logger.warning("%s is read as %s; write that in the reward file", name, ours)
        return ours


def _check(rubric: Any) -> None:
    if not callable(rubric) and not (isinstance(rubric, str) and "." in rubric):
        raise InvalidArgumentError(
            f"`rubric` must be callable or a class path, got {shown(rubric)}"
        )


def _line_of(error: LoadError) -> str:
    """Where the code of an imported module raised."""
    cause = error.__cause__ if error.traceback is not None else None
    if isinstance(cause, SyntaxError) and cause.filename:
        return f" ({cause.filename}:{cause.lineno})"
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    own = [each for each in frames if not each.filename.startswith("<")]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _refuse_python(name: str) -> None:
    """Refuse names of Python's standard library before an import, which may run programs."""
    source = name.rpartition(":")[0] or name
    if not source.endswith(".py") and _is_of_python(source):
        raise RewardConfigError(
            f"must not be in Python's standard library, got {shown(name)}; for a file of that "
            "name, write file.py:name"
        )


def _is_of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _accepted(name: str, spec: str) -> Any:
    """Import what a spec names; of an installed module only a rubric or a reward function."""
    inner = owner = module_in(spec)
    found = object_in(owner, spec)
    for part in split_spec(spec)[1].split("."):
        inner = getattr(inner, part)
        owner = inner if isinstance(inner, ModuleType) else owner
    kind = typing.get_origin(found) or found
    is_rubric = isinstance(kind, type) and issubclass(kind, Rubric)
    if is_rubric or isinstance(found, Rubric | RewardFunction):
        return found
    file = Path(getattr(owner, "__file__", None) or "")
    if _is_of_python(owner.__name__) or is_installed(file):
        raise RewardConfigError(
            f"must be a rubric or a reward function, as {owner.__name__} is an installed module; "
            f"register other functions under a name, or write them in a file, got {shown(name)}"
        )
    return found


def _spec_of(path: str, known: Sequence[str], folder: str | Path | None) -> str:
    """Import the module of a dotted path, and return ``module:name``."""
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        raise RewardConfigError(
            f"must be a registered name, package.module.Class or file.py:name, got {shown(path)}"
        )
    if folder is not None and str(Path(folder).resolve()) not in sys.path:
        sys.path.append(str(Path(folder).resolve()))  # after all installed packages
    missing: LoadError | None = None
    for number in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:number]), ".".join(parts[number:])
        spec = f"{module}:{name}"
        try:
            load_object(spec)
            return spec
        except LoadError as error:
            if error.traceback is not None:
                raise RewardConfigError(f"{error}{_line_of(error)}") from error
            found = sys.modules.get(module)
            if found is not None and (missing is None or hasattr(found, parts[number])):
                raise RewardConfigError(str(error)) from error
            missing = missing or error
    hint = did_you_mean(parts[-1], known)
    if not hint.startswith("did"):
        hint = "for a file, write file.py:name"
    raise RewardConfigError(
        f"there is no module {'.'.join(parts[:-1])!r} here or installed; {hint}"
    ) from missing


#: The registry that files are read with.
rubric_registry = RubricRegistry()
for _name in READY_MADE:
    rubric_registry.register(_name, f"guerdon.rubrics.{_name}")
