"""Simple style checks of a program."""

from __future__ import annotations

import ast
import builtins
import re
import threading
from collections.abc import Iterator

__all__ = ["faults"]

LONGEST_LINE = 100
LONGEST_FUNCTION = 40
SMALL = re.compile(r"_*[a-z][a-z0-9_]*|_+|[A-Z][A-Z0-9_]*")  # variables, and constants
CAMEL = re.compile(r"_*[A-Z][A-Za-z0-9]*")
BUILTIN = frozenset(name for name in dir(builtins) if name.islower())

# Two threads that parse at the same time can fail in CPython before 3.11.8 and 3.12.2 (gh-106905).
_parsing = threading.Lock()

Function = ast.FunctionDef | ast.AsyncFunctionDef


def faults(program: str, entry_point: str) -> dict[str, str]:
    r"""Check a program's style.

    Example:
        >>> from examples.coding_env.style import faults
        >>> found = faults("def add(a, b):\n    return a + b\n", "add")
        >>> [fault for fault in found.values() if fault]
        ['add has no docstring']

    Args:
        program: Python source.
        entry_point: The function or class that the program must define.

    Returns:
        The fault that each check found; an empty text if it found none.
    """
    try:
        with _parsing:
            tree = ast.parse(program)
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"syntax": "the program can't be parsed"}
    return {
        "lines": _first(_lines(program)),
        "docstring": _first(_docstring(nodes, entry_point)),
        "names": _first(_names(nodes)),
        "shadows": _first(_shadows(nodes)),
        "length": _first(_length(nodes)),
        "exceptions": _first(_exceptions(nodes)),
        "globals": _first(_globals(nodes)),
    }


def _first(found: Iterator[str]) -> str:
    return next(found, "")


def _lines(program: str) -> Iterator[str]:
    for number, line in enumerate(program.splitlines(), start=1):
        if len(line) > LONGEST_LINE:
            yield f"line {number} is longer than {LONGEST_LINE} characters"
        if line != line.rstrip() or "\t" in line:
            yield f"line {number} has a tab or trailing spaces"
        if re.fullmatch(r"[^'\"#]*;[^'\"#]*", line):
            yield f"line {number} has more than one statement"


def _docstring(nodes: list[ast.AST], entry_point: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Function | ast.ClassDef) and node.name == entry_point:
            if ast.get_docstring(node) is None:
                yield f"{entry_point} has no docstring"
            return
    yield f"{entry_point} is not defined by def or class"


def _names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ClassDef) and not CAMEL.fullmatch(node.name):
            yield f"the class {node.name} is not in CamelCase"
        for name in _bound(node):
            if not SMALL.fullmatch(name):
                yield f"the name {name} is not in snake_case"


def _shadows(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for name in _bound(node):
            if name in BUILTIN:
                yield f"{name} shadows a built-in name"


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds, other than classes and methods."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Module):
        yield from (each.name for each in node.body if isinstance(each, Function))


def _length(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield f"{node.name} has {length} lines, more than {LONGEST_FUNCTION}"


def _exceptions(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ExceptHandler):
            kind = node.type.id if isinstance(node.type, ast.Name) else None
            if node.type is None or kind in ("BaseException", "Exception"):
                yield f"line {node.lineno} catches every exception"


def _globals(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Global):
            yield f"line {node.lineno} writes to a global name"
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield f"line {node.lineno} imports everything"
