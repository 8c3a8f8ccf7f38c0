"""The package as a whole: light to import, complete, and built floor upon floor."""

import ast
import importlib
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import guerdon

ROOT = Path(guerdon.__file__).parent
HEAVY = {
    "numpy", "pydantic", "starlette", "uvicorn", "httpx", "websockets", "mcp", "openai", "torch",
    "typer", "rich", "jsonschema", "trio", "multiprocessing",
}  # fmt: skip

# As drawn in the design: a room may import from those under it, and from its own floor.
FLOORS = {
    "_lazy": 0,
    "errors": 1,
    "_background": 1,
    "_loading": 1,
    "_registry": 1,
    "_validation": 1,
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
    "cli": 7,
    "viewer": 7,
    "__main__": 7,
}
ROOMS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


# Light


def loaded_by(code):
    """The top-level packages that some code loads, in an interpreter of its own."""
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
def test_rubrics_load_nothing_heavy(code):
    assert loaded_by(code) & HEAVY == set()


def test_importing_the_package_loads_no_room():
    code = "import guerdon, sys; print(sorted(n for n in sys.modules if n.startswith('guerdon')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "['guerdon', 'guerdon._lazy']"


# Complete


def test_every_name_that_is_offered_is_there():
    names = guerdon.__all__
    assert len(names) == len(set(names)) > 40
    for name in names:
        assert getattr(guerdon, name) is not None


def test_the_names_of_the_package_are_sorted_and_listed():
    assert list(guerdon.__all__) == sorted(guerdon.__all__)
    assert set(guerdon.__all__) <= set(dir(guerdon))


def test_everything_that_a_person_needs_is_offered_at_the_top():
    wanted = {
        "Rubric", "Sequential", "Gate", "WeightedSum", "RubricList", "RubricDict",
        "TrajectoryRubric", "ExponentialDiscountingTrajectoryRubric", "Guarded", "Message",
        "Rollout", "Score", "RolloutScorer", "score_rollouts", "load_reward",
        "GuerdonError", "RubricError",
    }  # fmt: skip
    assert wanted - set(guerdon.__all__) == set()


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'guerdon' has no attribute 'Nonsense'"):
        guerdon.Nonsense  # noqa: B018
    assert not hasattr(guerdon, "__nonsense__")


@pytest.mark.parametrize("room", [*ROOMS, "errors"])
def test_each_room_offers_sorted_names_that_are_there(room):
    module = importlib.import_module(f"guerdon.{room}")
    names = list(module.__all__)
    assert names == sorted(names)
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(module, name)


def test_every_public_name_of_every_module_is_sorted_and_there():
    for name in sorted(modules()):
        module = importlib.import_module(name)
        offered = getattr(module, "__all__", None)
        if offered is None:
            continue
        assert list(offered) == sorted(offered), name
        assert [each for each in offered if not hasattr(module, each)] == [], name


# Floor upon floor


def modules():
    """Every module of the package, by name, with its file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ["guerdon", *path.relative_to(ROOT).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, path, *, at_import_time):
    """The modules of the package that a module imports, as far as they can be told by reading."""
    known = modules()

    def visit(node):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for each in node.orelse:
                yield from visit(each)
        elif not (at_import_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            for each in ast.iter_child_nodes(node):
                yield from visit(each)

    return {
        each
        for each in visit(ast.parse(path.read_text()))
        if each == "guerdon" or each.startswith("guerdon.")
    }


def room_of(module):
    return module.split(".")[1]


def test_every_room_has_its_floor():
    assert {room_of(name) for name in modules() if "." in name} - set(FLOORS) == set()


def test_rooms_import_from_their_own_and_lower_floors_only():
    upward = []
    for name, path in modules().items():
        if name == "guerdon":
            continue
        for other in imports(name, path, at_import_time=False):
            # The package itself offers the rooms lazily: only who stands on top may look there.
            floor = 6 if other == "guerdon" else FLOORS[room_of(other)]
            if floor > FLOORS[room_of(name)]:
                upward.append(f"{name} imports {other}")
    assert sorted(upward) == []


def test_the_package_itself_imports_nothing_but_the_lazy_names():
    assert imports("guerdon", ROOT / "__init__.py", at_import_time=True) == {"guerdon._lazy"}


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        name: imports(name, path, at_import_time=True) - {"guerdon", name}
        for name, path in modules().items()
    }
    order = list(TopologicalSorter(graph).static_order())  # raises where there is a circle
    assert set(order) == set(graph)
    assert order.index("guerdon.errors") < order.index("guerdon.rubrics.rubric")


def test_rooms_of_one_floor_do_not_import_each_other_in_a_circle():
    graph = {}
    for name, path in modules().items():
        if name != "guerdon":
            rooms = {room_of(other) for other in imports(name, path, at_import_time=True)
                     if other != "guerdon"}  # fmt: skip
            graph.setdefault(room_of(name), set()).update(rooms - {room_of(name)})
    assert set(TopologicalSorter(graph).static_order()) == set(graph)
