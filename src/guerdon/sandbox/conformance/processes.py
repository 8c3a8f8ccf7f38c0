"""What runs on this machine, as /proc tells it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["descendants", "marked", "open_descriptors", "status"]

_PROC = Path("/proc")


def _processes() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()] if _PROC.is_dir() else []


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """A process's name and the fields after it; None where it is gone or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition(" (")[2].rpartition(") ")
    fields = rest.split()
    return None if fields[0] in "ZX" else (name, fields)


def descendants(pid: int) -> set[int]:
    """The living children of a process, theirs, and so on."""
    parents = {child: int(seen[1][1]) for child in _processes() if (seen := _stat(child))}
    found: set[int] = set()
    while new := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= new
    return found


def marked(name: str) -> set[int]:
    """The living processes of that name, whoever they are children of."""
    return {pid for pid in _processes() if (seen := _stat(pid)) and seen[0] == name}


def status(pid: int) -> tuple[str, ...]:
    """What can be done to a process from outside: signals, its tracer, priority and limits."""
    seen = _stat(pid)
    if seen is None:
        return ()
    folder = _PROC / str(pid)
    try:
        lines = (folder / "status").read_text().splitlines()
        limits = (folder / "limits").read_text()
    except OSError:
        return ()
    kinds = ("TracerPid", "Uid", "SigPnd", "ShdPnd", "Cpus_allowed:")
    found = [line for line in lines if line.startswith(kinds)]
    return (*found, seen[1][16], seen[1][38], limits)


def open_descriptors() -> set[int]:
    """The descriptors that this process has open."""
    try:
        found = {int(name) for name in os.listdir("/proc/self/fd")}
    except OSError:
        return set()
    # The one that lists them is among them, and closed by now.
    return {descriptor for descriptor in found if _is_open(descriptor)}


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
