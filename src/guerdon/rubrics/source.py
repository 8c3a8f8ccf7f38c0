"""The source that a class or a function consists of, within its file, for fingerprints."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import linecache
import sys
import textwrap
import threading
import tokenize
from collections.abc import Iterator
from types import CodeType
from typing import Any, TypeAlias

# The statements that define a name, by their numbers: the source, and the names it mentions.
_Statements: TypeAlias = "dict[str, dict[int, tuple[str, list[str]]]]"

# Functions that may use any name of their file.
_OPAQUE = frozenset(("eval", "exec", "globals"))

# Methods that change a table, such as a registry.
_CHANGING = frozenset(("add", "append", "extend", "insert", "register", "setdefault", "update"))

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def source_in_file(thing: Any) -> str:
    """Return what a class or a function consists of, as far as it is in its file.

    It consists of its own statement at the top level and the statements of the names that it
    mentions: bases, helpers, constants, imports. Comments, blank lines and everything else in the
    file don't count.

    Args:
        thing: A class or a function of a user.

    Returns:
        The source; empty if its file can't be read. It is that of the whole file if its statement
        isn't known, or if it uses a table that functions of the file change, or any name.
    """
    module = thing.__module__
    statements, opaque = _statements(module)
    code = getattr(thing, "__code__", None)
    needed = [thing.__qualname__.partition(".")[0], *(() if code is None else _names(code))]
    used: dict[int, str] = {}
    for name in needed:  # the loop appends to it
        for number, (text, mentioned) in statements.get(name, {}).items():
            if number not in used:
                used[number] = text
                needed += mentioned
    if not used or not opaque.isdisjoint(needed):
        return _text(module)
    return "\n".join(used[number] for number in sorted(used))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache
def _text(module: str) -> str:
    """The source of a module, without comments and blank lines."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    return "" if file is None else bare("".join(linecache.getlines(file, vars(loaded))))


@functools.cache
def _statements(module: str) -> tuple[_Statements, frozenset[str]]:
    """The statements that define each name, and the names whose values functions change."""
    text = _text(module)
    lines = text.splitlines()
    with parsing:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            return {}, _OPAQUE
    statements: _Statements = {}
    changed: set[str] = set()
    for number, node in enumerate(body):
        start = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
        source = "\n".join(lines[start - 1 : node.end_lineno])
        mentioned = [name.id for name in ast.walk(node) if isinstance(name, ast.Name)]
        if isinstance(node, _DEFINITIONS):
            changed.update(_altered(node))
            defined = [node.name]
        else:
            defined = [*_defined(node), *_altered(node)]
            defined += mentioned if isinstance(node, ast.Expr) else []
        for name in defined:
            statements.setdefault(name, {})[number] = source, mentioned
    return statements, _OPAQUE | (changed & statements.keys())


def _defined(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, _DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _altered(statement: ast.stmt) -> Iterator[str]:
    """The names whose values a statement may change."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.value, ast.Name):
            is_set = not isinstance(node.ctx, ast.Load)
            if is_set or (isinstance(node, ast.Attribute) and node.attr in _CHANGING):
                yield node.value.id


def bare(source: str) -> str:
    r"""Return source without comments and blank lines; unchanged if it isn't valid.

    Example:
        >>> bare("x = 1  # one\n\n# two\ny = 2\n")
        'x = 1\ny = 2'
    """
    lines = source.splitlines()
    ended = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT:
                lines[row - 1] = lines[row - 1][:column]
            elif token.type in (tokenize.NL, tokenize.NEWLINE):
                ended.add(row - 1)
    except (SyntaxError, tokenize.TokenError, IndexError):
        return source
    # A blank line within a string isn't the end of one.
    kept = (line.rstrip() if row in ended else line for row, line in enumerate(lines))
    return "\n".join(line for row, line in enumerate(kept) if line or row not in ended)


# Python 3.11 counts the parsing depth of all threads together, and raises SystemError.
parsing = threading.Lock()
TRIES = 10


@functools.lru_cache(maxsize=1024)  # looking for a class parses its whole file
def own_source(thing: type | CodeType) -> str:
    """Return the source of a class or of code alone, without comments; empty without a file."""
    with parsing:
        for tried in range(TRIES):
            try:
                return bare(textwrap.dedent(inspect.getsource(thing)))
            except (OSError, TypeError, IndentationError):
                return ""
            except SystemError:  # another thread parses, too
                if tried == TRIES - 1:
                    raise
    return ""
