"""Every ready-made check."""

import doctest
import importlib
import pkgutil

import pytest

from guerdon import rubrics
from guerdon.rubrics import checks
from guerdon.rubrics.rubric import Rubric

MODULES = [
    importlib.import_module(f"guerdon.rubrics.checks.{module.name}")
    for module in pkgutil.iter_modules(checks.__path__)
]
CHECKS = [
    value
    for name in checks.__all__
    if isinstance(value := getattr(checks, name), type) and issubclass(value, Rubric)
]


def test_checks_public_names_are_sorted_and_there():
    assert checks.__all__ == sorted(checks.__all__)
    assert {check.__name__ for check in CHECKS} <= set(rubrics.__all__)


@pytest.mark.parametrize("check", CHECKS)
def test_checks_declare_their_range_and_describe_themselves(check):
    low, high = check.score_range
    assert 0.0 <= low < high <= 1.0
    first = check.__doc__.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 90


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_checks_have_docstring_examples_that_run(module):
    assert doctest.testmod(module).failed == 0
