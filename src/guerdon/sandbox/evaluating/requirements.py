"""Whether what a reward requires is installed."""

from __future__ import annotations

import importlib.metadata
import shlex
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement

from guerdon.errors import LoadError

__all__ = ["check_requirements"]


def check_requirements(lines: Iterable[str], spec: str) -> None:
    """Check requirements against what is installed; nothing is ever installed.

    Example:
        >>> check_requirements(["pydantic>=2"], "reward.py:score")
        >>> check_requirements(["no-such-thing>=1"], "reward.py:score")
        Traceback (most recent call last):
        guerdon.errors.LoadError: reward.py:score requires what isn't there:
          no-such-thing>=1: it isn't installed
        pip install 'no-such-thing>=1'

    Args:
        lines: As PEP 508 has them, such as ``numpy>=1.26``; those whose marker doesn't apply here
            are passed over, as are empty ones.
        spec: What requires them, for the error.

    Raises:
        LoadError: One isn't met, or is no requirement; all are named.
    """
    problems: list[str] = []
    install: dict[str, None] = {}
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            said = str(error).splitlines()[0]
            raise LoadError(
                f"{spec} requires {text!r:.80}, which is no requirement: {said}", spec=spec
            ) from None
        for problem in _problems(requirement, "", set()):
            problems.append(f"  {problem}")
            install[text] = None
    if problems:
        command = " ".join(map(shlex.quote, install))
        raise LoadError(
            "\n".join([f"{spec} requires what isn't there:", *problems, f"pip install {command}"]),
            spec=spec,
        )


def _problems(requirement: Requirement, extra: str, seen: set[str]) -> list[str]:
    """Why a requirement isn't met, and those of its extras."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
        return []
    if requirement.url is not None:
        return [f"{requirement}: it names an address; name a version, as in {requirement.name}>=1"]
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return [f"{requirement}: it isn't installed"]
    if not requirement.specifier.contains(found.version, prereleases=True):
        return [f"{requirement}: version {found.version} is installed"]
    problems = []
    for name in sorted(requirement.extras):
        key = f"{requirement.name}[{name}]".lower()
        if key in seen:
            continue
        offered = {each.lower() for each in found.metadata.get_all("Provides-Extra") or ()}
        if name.lower() not in offered:
            problems.append(f"{requirement}: version {found.version} has no extra {name!r}")
        for line in found.requires or ():
            inner = Requirement(line)
            if inner.marker is not None and "extra" in str(inner.marker):
                problems += _problems(inner, name, seen | {key})
    return problems
