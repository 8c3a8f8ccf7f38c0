"""The source that a class or a function consists of, within its file, for fingerprints."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import itertools
import linecache
import sys
import textwrap
import threading
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

# Functions that may use any name of their file.
_OPAQUE = frozenset(("eval", "exec", "globals"))

# Methods that change a module's table, such as a registry.
_CHANGING = frozenset(
    ["add", "append", "extend", "insert", "pop", "register", "setdefault", "update"]
)


@dataclass(slots=True)
class _Statement:
    """A statement at the top level of a file.

    Attributes:
        text: Its source.
        changes: The names that it defines, and whose values it changes.
        uses: The names that it mentions.
        decorators: The names that it is decorated with.
    """

    text: str
    changes: set[str]
    uses: set[str]
    decorators: set[str]


def source_in_file(thing: Any) -> str:
    """Return what a class or a function consists of, as far as it is in its file.

    That is its own statement at the top level, and those of the names that it mentions: bases,
    helpers, constants, imports. Comments, blank lines and all else in the file don't count.

    Args:
        thing: A class or a function of a user.

    Returns:
        The source; empty if its file can't be read. It is that of the whole file if its statement
        isn't known, or one may use any name.
    """
    statements = _statements(thing.__module__)
    code = getattr(thing, "__code__", None)
    needed = [thing.__qualname__.partition(".")[0], *(_names(code) if code is not None else ())]
    if code is None and not any(needed[0] in each.changes for each in statements):
        return _text(thing.__module__)
    found: set[int] = set()
    for name in needed:  # the loop appends to it
        for number, statement in enumerate(statements):
            if number not in found and name in statement.changes:
                found.add(number)
                needed += statement.changes | statement.uses
    if not _OPAQUE.isdisjoint(needed):
        return _text(thing.__module__)
    return "\n".join(statements[number].text for number in sorted(found))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache
def _text(module: str) -> str:
    """The source of a module, without comments and blank lines."""
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    return "" if file is None else bare("".join(linecache.getlines(file, vars(found))))


@functools.cache
def _statements(module: str) -> list[_Statement]:
    text = _text(module)
    lines = text.splitlines()
    with parsing:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            return []
    defined = {name for node in body for name in _defined(node)}
    statements = []
    for node in body:
        decorators = getattr(node, "decorator_list", [])
        start = min(each.lineno for each in [node, *decorators])
        statements.append(
            _Statement(
                text="\n".join(lines[start - 1 : node.end_lineno]),
                changes={*_defined(node), *(defined & {*_altered(node)})},
                uses=set(_mentioned(node)),
                decorators={name for each in decorators for name in _mentioned(each)},
            )
        )
    # What a decorator of this file puts into a table belongs to whatever uses the table.
    functions = [isinstance(node, ast.FunctionDef) for node in body]
    for decorator in itertools.compress(statements, functions):
        for statement in statements if len(decorator.changes) > 1 else ():
            statement.changes |= statement.decorators & decorator.changes
    return statements


def _mentioned(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement defines."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in [statement] if isinstance(statement, definitions) else ast.walk(statement):
        if isinstance(node, definitions):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _altered(statement: ast.stmt) -> Iterator[str]:
    """The names whose values a statement may change."""
    if isinstance(statement, ast.Expr):
        yield from _mentioned(statement)
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
        >>> bare("x = 1  # one\\n\\n# two\\ny = 2\\n")
        'x = 1\\ny = 2'
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
