"""Every promise of SECURITY.md names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

from faults.__main__ import BY_DEFAULT

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text()
PROMISES = TEXT[TEXT.index("## What is promised") : TEXT.index("## What is not promised")]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PROMISES.splitlines()
    if line.startswith("| ") and not line.startswith("| Promise |")
]
TEST = r"`(tests/[\w/]+\.py)::(test_\w+)`"
FAULTS = r"`make faults` \(([\w, ]+)\)"


@cache
def names_in(path):
    """The test functions of a file."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_security_names_only_tests_that_exist():
    named = re.findall(TEST, TEXT)
    assert len(named) > 40
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []


def test_security_names_only_rows_of_make_faults_that_exist():
    rows = {row for found in re.findall(FAULTS, TEXT) for row in found.split(", ")}
    assert rows == set(BY_DEFAULT)


def test_security_has_a_test_for_each_promise():
    assert len(ROWS) > 25
    shown = re.compile(f"(?:{TEST}|{FAULTS})(?:[,;] (?:{TEST}|{FAULTS}))*")
    assert [promise for promise, by in ROWS if not shown.fullmatch(by)] == []
