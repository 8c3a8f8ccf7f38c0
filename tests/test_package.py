"""The package as a whole: import time, layers, import circles, and the documented API."""

import ast
import importlib
import json
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import guerdon
from guerdon.errors import MissingExtraError

ROOT = Path(guerdon.__file__).parent
PROJECT = Path(__file__).parents[1]
HEAVY = {
    "numpy", "pydantic", "starlette", "uvicorn", "httpx", "websockets", "mcp", "openai", "torch",
    "typer", "rich", "jsonschema", "trio", "multiprocessing", "gymnasium", "pettingzoo",
}  # fmt: skip

# A package imports from packages on lower floors, and from packages on its own floor that don't
# import it.
FLOORS = {
    "_lazy": 0,
    "errors": 1,
    "_background": 1,
    "_loading": 1,
    "_patterns": 1,
    "_ray": 1,
    "_registry": 1,
    "_thresholds": 1,
    "_problems": 1,
    "_validation": 1,
    "_work_clock": 1,
    "_http": 1,
    "_pages": 1,
    "_logging": 1,
    "types": 1,
    "credit": 2,
    "rubrics": 2,
    "sandbox": 2,
    "services": 3,
    "config": 4,
    "tracking": 4,
    "envs": 5,
    "rollouts": 6,
    "integrations": 7,
    "arena": 7,
    "cli": 7,
    "viewer": 7,
    "__main__": 7,
}
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@cache
def imports() -> dict[str, set[str]]:
    """Return the modules of guerdon that each of its modules imports.

    Deferred imports in functions and imports under ``TYPE_CHECKING`` count.
    """
    paths = {}
    for path in ROOT.rglob("*.py"):
        parts = ["guerdon", *path.relative_to(ROOT).with_suffix("").parts]
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path

    def imported(name, tree):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                package = name.split(".")[: -node.level] if node.level else []
                module = ".".join([*package, *filter(None, [node.module])])
                for alias in node.names:
                    submodule = f"{module}.{alias.name}"
                    yield submodule if submodule in paths else module

    return {
        name: {each for each in imported(name, ast.parse(path.read_text())) if each in paths}
        - {name}
        for name, path in paths.items()
    }


def package_of(module):
    return module.split(".")[1]


# Import time


def loaded_by(code):
    """Return the top-level packages that some code loads in a new interpreter."""
    code += "\nimport json, sys\nprint(json.dumps([name.split('.')[0] for name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "code",
    [
        "import guerdon; guerdon.Rubric",
        "import guerdon; guerdon.__version__; guerdon.WeightedSum",
        "from guerdon import Rubric, Gate, RubricError",
        "from guerdon.rubrics import Rubric",
    ],
)
def test_importing_rubrics_loads_no_heavy_package(code):
    assert loaded_by(code) & HEAVY == set()


def test_import_guerdon_loads_none_of_its_packages():
    code = "import guerdon, sys; print(sorted(n for n in sys.modules if n.startswith('guerdon')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "['guerdon', 'guerdon._lazy']"


# Public names


@pytest.mark.parametrize("package", ["", *[f".{each}" for each in PACKAGES if each != "cli"]])
def test_all_of_each_package_is_sorted_and_exists(package):
    module = importlib.import_module(f"guerdon{package}")
    names = list(module.__all__)
    assert names == sorted(set(names))
    assert [name for name in names if getattr(module, name, None) is None] == []
    assert set(names) <= set(dir(module))


def test_all_of_every_module_is_sorted_and_exists():
    for name in sorted(imports()):
        try:
            module = importlib.import_module(name)
        except MissingExtraError:  # an integration whose framework isn't installed
            continue
        names = getattr(module, "__all__", [])
        assert list(names) == sorted(names), name
        assert [each for each in names if not hasattr(module, each)] == [], name


def test_guerdon_exports_at_most_80_names():
    assert len(guerdon.__all__) <= 80


def test_lazy_names_of_guerdon_are_those_that_type_checkers_see():
    """The table of lazy names and the imports under TYPE_CHECKING are the same names."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in guarded.body for alias in node.names}
    assert seen == set(guerdon.__all__)


def test_guerdon_raises_attribute_error_for_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'guerdon' has no attribute 'Nonsense'"):
        guerdon.Nonsense  # noqa: B018
    assert not hasattr(guerdon, "__nonsense__")


# Layers


def test_every_package_has_a_floor():
    assert {package_of(name) for name in imports() if "." in name} <= set(FLOORS)


def test_packages_import_from_their_own_and_lower_floors_only():
    upward = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name != "guerdon"
        # guerdon itself re-exports every package: only the top floor may import it.
        and (6 if other == "guerdon" else FLOORS[package_of(other)]) > FLOORS[package_of(name)]
    ]
    assert sorted(upward) == []


def test_sandbox_imports_only_errors_and_shared_mechanisms():
    """The sandbox can be released separately."""
    used = {
        package_of(other)
        for name, others in imports().items()
        if name.startswith("guerdon.sandbox")
        for other in others
        if other != "guerdon"
    }
    shared = {"_lazy", "_loading", "_registry", "_validation", "_work_clock"}
    assert used <= {"sandbox", "errors"} | shared


def circle(graph):
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    """Counting deferred and typing imports, except those of the lazy packages' own exports."""
    modules = {
        name: {other for other in others if not other.startswith(f"{name}.")} - {"guerdon"}
        for name, others in imports().items()
    }
    assert circle(modules) == []


def test_no_packages_import_each_other_in_a_circle():
    packages = {}
    for name, others in imports().items():
        if name != "guerdon":
            used = {package_of(other) for other in others if other != "guerdon"}
            packages.setdefault(package_of(name), set()).update(used - {package_of(name)})
    assert circle(packages) == []
