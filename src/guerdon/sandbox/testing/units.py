"""Which tests a text consists of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Statements that test nothing.
_SETTING = (
    *(ast.Import, ast.ImportFrom, *_FUNCTIONS, ast.ClassDef),
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass),
)


def units_of(source: str, entry_point: str) -> list[str]:
    r"""Return the names of the tests of a text, each of which is counted.

    The methods of its classes of ``unittest``; its functions ``test_*``; its function ``check``
    with one parameter, the entry point, as HumanEval has it; each unless the text runs it itself.
    And its own statements, with an empty name, if they test something, or if it has nothing else.

    Args:
        source: The text, which is valid Python.
        entry_point: The name of what it tests.

    Example:
        >>> from guerdon.sandbox.testing.units import units_of
        >>> units_of("def test_one(): assert f(1) == 1\ndef check(g): assert g(2) == 2", "f")
        ['test_one', 'check']
        >>> units_of("def test_one(): assert f(1) == 1\ntest_one()", "f")
        ['']
    """
    statements = [each for each in ast.parse(source).body if not _is_main_guard(each)]
    classes = _classes(statements)
    called = set(_names_used(statements))
    found: list[str] = []
    for each in statements:
        if getattr(each, "name", "") in called:  # the text runs it itself
            continue
        if isinstance(each, ast.ClassDef):
            found += [f"{each.name}.{name}" for name in classes.get(each.name, ())]
        elif isinstance(each, _FUNCTIONS) and _is_test(each):
            found.append(each.name)
    own = [each for each in statements if not isinstance(each, _SETTING)]
    tested = {entry_point, *classes, *_functions(statements)}
    has_own = _has_assertion(own) or not tested.isdisjoint(_names_used(own))
    return ["", *found] if has_own or not found else found


def _has_assertion(statements: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Assert) for each in statements for node in ast.walk(each))


def _classes(statements: list[ast.stmt]) -> dict[str, list[str]]:
    """Return the classes of ``unittest`` with the names of their tests, inherited ones first."""
    found: dict[str, list[str]] = {}
    for each in statements:
        if isinstance(each, ast.ClassDef):
            bases = list(map(_last_name, each.bases))
            if any(base.endswith("TestCase") or base in found for base in bases):
                tests = [name for base in bases for name in found.get(base, ())]
                tests += [name for name in _functions(each.body) if name.startswith("test")]
                found[each.name] = list(dict.fromkeys(tests))
    return found


def _is_test(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    args = function.args
    is_check = function.name == "check" and len(args.posonlyargs + args.args) == 1
    return is_check or function.name.startswith("test_")


def _functions(body: list[ast.stmt]) -> Iterator[str]:
    for each in body:
        if isinstance(each, _FUNCTIONS):
            yield each.name


def _names_used(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements use, except for those inside of functions and classes."""
    for each in statements:
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
            continue
        for node in ast.walk(each):
            if isinstance(node, ast.Name):
                yield node.id


def _last_name(base: ast.expr) -> str:
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def _is_main_guard(statement: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    is_if = isinstance(statement, ast.If)
    return is_if and "__name__" in {
        node.id
        for node in ast.walk(statement.test)  # type: ignore[attr-defined]
        if isinstance(node, ast.Name)
    }
