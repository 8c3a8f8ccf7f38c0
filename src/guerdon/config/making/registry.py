"""Rubrics by name: registered in code, by another package's entry points, or by their path."""

from __future__ import annotations

import re
import sys
import threading
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from guerdon._loading import (
    load_object,
)
from guerdon.config.documents import near
from guerdon.errors import InvalidArgumentError, LoadError, RewardConfigError

__all__ = ["RubricRegistry", "rubric_registry"]

ENTRY_POINTS = "guerdon.rubrics"

# The ready-made rubrics that can be made of a config.
READY_MADE = (
    "ExactMatch", "LengthBounds", "NumericAnswer", "PythonCompiles", "RegexMatch",
    "RepetitionBounds", "ToxicityRubric", "ValidJson",
)  # fmt: skip


class RubricRegistry:
    """What makes rubrics, by name.

    What a package offers under the entry points ``guerdon.rubrics`` is there without being
    registered; a name that was registered in code comes first.

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
        self._rubrics: dict[str, Any] = {}
        self._lock = threading.Lock()

    def register(self, name: str, rubric: Any, *, replace: bool = False) -> None:
        """Register what makes a rubric.

        Args:
            name: Letters, digits, ``-`` and ``_``; a letter first.
            rubric: A rubric class, a function that makes a rubric, a function
                ``f(action, observation) -> float``; or ``package.module.Class``, which is imported
                when it is needed.
            replace: Whether it may take the place of another.

        Raises:
            InvalidArgumentError: The name can't be one or is taken, or the rubric is none.
        """
        if not isinstance(name, str) or re.fullmatch(r"[A-Za-z][\w-]*", name) is None:
            raise InvalidArgumentError(
                f"{name!r} can't be a name; it takes letters, digits, '-' and '_', a letter first"
            )
        if not callable(rubric) and not (isinstance(rubric, str) and "." in rubric):
            raise InvalidArgumentError(f"{rubric!r:.60} is no rubric and makes none")
        with self._lock:
            if name in self._rubrics and not replace:
                raise InvalidArgumentError(
                    f"there is a rubric {name!r} already; replace=True replaces it"
                )
            self._rubrics[name] = rubric

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted({*self._rubrics, *(each.name for each in entry_points(group=ENTRY_POINTS))})

    def resolve(self, name: str, *, folder: str | Path | None = None) -> Any:
        """What a name stands for: a class, a function, or a rubric.

        Args:
            name: A registered name; that of an entry point; a dotted path, as
                ``package.module.Class``; ``module:name``, or ``file.py:name``.
            folder: Where such a file is looked for, and a module that is neither in the present
                directory nor installed; None is the present directory alone.

        Raises:
            RewardConfigError: There is none, or what offers it can't be imported.
        """
        if name in self._rubrics:
            found = self._rubrics[name]
            return _at_path(found) if isinstance(found, str) else found
        for entry in entry_points(group=ENTRY_POINTS, name=name):
            try:
                return entry.load()
            except (Exception, SystemExit) as error:
                raise RewardConfigError(
                    f"the rubric {name!r} ({entry.value}) can't be imported: {error!r}"
                ) from error
        if ":" in name:
            return _in_file(name, folder)
        if "." in name:
            return _at_path(name, known=self.names(), folder=folder)
        raise RewardConfigError(f"there is no rubric {name!r:.80}; {near(name, self.names())}")


def _in_file(spec: str, folder: str | Path | None) -> Any:
    source = spec.rpartition(":")[0]
    if source.endswith(".py") and folder is not None:
        spec = str(Path(folder) / spec)
    try:
        return load_object(spec)
    except LoadError as error:
        raise RewardConfigError(f"{error}{_line_of(error)}") from error


def _line_of(error: LoadError) -> str:
    """Where the code of a module raised that was imported."""
    cause = error.__cause__ if error.traceback is not None else None
    if isinstance(cause, SyntaxError) and cause.filename:
        return f" ({cause.filename}:{cause.lineno})"
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    own = [each for each in frames if not each.filename.startswith("<")]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _at_path(path: str, known: list[str] | None = None, *, folder: str | Path | None = None) -> Any:
    """What stands at a dotted path, whose first parts are a module."""
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        raise RewardConfigError(
            f"{path!r:.80} names no rubric; write a registered name, package.module.Class or "
            "file.py:name"
        )
    if folder is not None and str(Path(folder).resolve()) not in sys.path:
        sys.path.append(str(Path(folder).resolve()))  # behind all that is installed
    missing: LoadError | None = None
    for number in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:number]), ".".join(parts[number:])
        try:
            return load_object(f"{module}:{name}")
        except LoadError as error:
            if error.traceback is not None:  # importing it raised
                raise RewardConfigError(f"{error}{_line_of(error)}") from error
            if module in sys.modules:
                _refuse_name(sys.modules[module], name, is_whole=missing is None, cause=error)
            missing = missing or error
    hint = near(parts[-1], known) if known else ""
    if not hint.startswith("did"):
        hint = "for a file, write file.py:name"
    raise RewardConfigError(
        f"there is no module {'.'.join(parts[:-1])!r} here or installed; {hint}"
    ) from missing


def _refuse_name(module: ModuleType, name: str, *, is_whole: bool, cause: LoadError) -> None:
    """Refuse a name that a module lacks, as far as it is known to be meant as one of its names."""
    holder: Any = module
    said = module.__name__
    *outer, last = name.split(".")
    for part in outer:
        if not hasattr(holder, part):
            break
        holder, said = getattr(holder, part), f"{said}.{part}"
    else:
        if is_whole or outer:
            hint = near(last, _public(holder))
            raise RewardConfigError(f"{said} has no {last!r:.80}; {hint}") from cause


def _public(holder: Any) -> list[str]:
    """The names of a module or class that may be those of rubrics, or make them."""
    return [
        name
        for name in dir(holder)
        if not name.startswith("_") and callable(getattr(holder, name, None))
    ]


def _with_ready_made() -> RubricRegistry:
    registry = RubricRegistry()
    for name in READY_MADE:
        registry.register(name, f"guerdon.rubrics.{name}")
    registry.register("LLMJudge", "guerdon.rubrics.judge.judge.LLMJudge")
    return registry


#: Where the library itself looks names up.
rubric_registry = _with_ready_made()
