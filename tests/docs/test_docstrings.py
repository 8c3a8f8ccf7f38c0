"""Docstring examples run, every public name has one, and docs/api.md is up to date."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import guerdon

pytestmark = pytest.mark.docs

MODULES = ["guerdon", *(m.name for m in pkgutil.walk_packages(guerdon.__path__, "guerdon."))]
EXAMPLES = [
    example
    for name in MODULES
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    if example.examples
]
PUBLIC = {
    name: value
    for name in guerdon.__all__
    if inspect.isfunction(value := getattr(guerdon, name))
    or (inspect.isclass(value) and not issubclass(value, Exception))
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_docstring_example_runs(example):
    output = []
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    runner.run(example, out=output.append, clear_globs=False)
    assert not runner.failures, "".join(output)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    doc = inspect.getdoc(PUBLIC[name]) or ""
    assert doctest.DocTestParser().get_examples(doc), f"guerdon.{name} has no example"


def test_api_reference_is_up_to_date():
    """docs/api.md is the snapshot of the public API; `make api` writes it."""
    script = Path(__file__).parents[2] / "scripts" / "api_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
