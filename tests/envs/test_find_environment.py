"""find_environment: the names it accepts, and its errors."""

import os
import sys
import textwrap

import pytest

from guerdon import Environment
from guerdon.envs.registry import environments, find_environment
from guerdon.errors import LoadError
from tests.envs.worlds import World

CODE = """
    from guerdon import Action, Environment, Observation, RegexMatch, State

    class {name}(Environment):
        state = State()

        def __init__(self):
            super().__init__(rubric=RegexMatch("please"))

        def reset(self, seed=None):
            return Observation()

        def step(self, action: Action):
            return self.score(action, Observation())
"""


@pytest.fixture(autouse=True)
def _forgetful(tmp_path, monkeypatch):
    """Forgets, after each test, what was imported from its folder; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(modules):
        file = getattr(sys.modules[name], "__file__", None)
        if file is None or file.startswith(str(tmp_path)):
            del sys.modules[name]


def folder(path, text=None, *, name="Maze", package=False):
    """A folder with an environment.py."""
    path.mkdir(parents=True, exist_ok=True)
    if package:
        (path / "__init__.py").touch()
    code = CODE.format(name=name) if text is None else text
    (path / "environment.py").write_text(textwrap.dedent(code))
    return path


# What is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [False, True], ids=["folder", "package"])
@pytest.mark.parametrize("how", ["maze_a", "./maze_a/", "{tmp}/maze_a", "sub/../maze_a"])
def test_find_environment_a_folder_with_one_environment(tmp_path, how, package):
    folder(tmp_path / "maze_a", package=package)
    (tmp_path / "sub").mkdir()
    found = find_environment(how.format(tmp=tmp_path))
    assert found.__name__ == "Maze"
    assert issubclass(found, Environment)
    assert isinstance(found(), Environment)


def test_find_environment_the_working_directory_itself(tmp_path):
    folder(tmp_path)
    assert find_environment(".").__name__ == "Maze"


def test_find_environment_a_folder_inside_of_a_package_imports_what_lies_beside_it_relatively(
    tmp_path,
):
    outer = tmp_path / "outer_b"
    inner = folder(
        outer / "inner",
        "from .words import WORD\nfrom ..more import MORE\n"
        + textwrap.dedent(CODE.format(name="Maze")),
        package=True,
    )
    (outer / "__init__.py").touch()
    (inner / "words.py").write_text("WORD = 'hello'\n")
    (outer / "more.py").write_text("MORE = 'more'\n")
    found = find_environment("outer_b/inner")
    assert found.__module__ == "outer_b.inner.environment"
    module = sys.modules[found.__module__]
    assert (module.WORD, module.MORE) == ("hello", "more")


def test_find_environment_a_folder_that_is_no_package_may_import_what_lies_beside_it(tmp_path):
    folder(tmp_path / "maze_c", "import beside_c\n" + textwrap.dedent(CODE.format(name="Maze")))
    (tmp_path / "maze_c" / "beside_c.py").touch()
    assert find_environment("maze_c").__name__ == "Maze"


def test_find_environment_two_folders_of_one_name_are_two_environments(tmp_path):
    for package in (False, True):
        for place in ("one", "two"):
            name = f"maze_{package}".lower()
            folder(tmp_path / place / name, name=place.title(), package=package)
        assert [find_environment(f"{place}/{name}").__name__ for place in ("one", "two")] == [
            "One",
            "Two",
        ]


def test_find_environment_what_a_folder_imports_and_what_is_private_does_not_count(tmp_path):
    folder(
        tmp_path / "maze_d",
        "from tests.envs.worlds import Served, World\n"
        + textwrap.dedent(CODE.format(name="Maze"))
        + "\nclass _Simple(Maze):\n    pass\n",
    )
    assert find_environment("maze_d").__name__ == "Maze"


def test_find_environment_another_name_of_the_same_class_does_not_count(tmp_path):
    folder(tmp_path / "maze_e", textwrap.dedent(CODE.format(name="Maze")) + "\nDefault = Maze\n")
    assert find_environment("maze_e").__name__ == "Maze"


@pytest.mark.parametrize("name", ["Maze", "make", "Holder.Inner"])
def test_find_environment_a_class_or_a_function_of_a_file(tmp_path, name):
    more = "def make():\n    return Maze()\nclass Holder:\n    Inner = Maze\n"
    folder(tmp_path / "maze_f", textwrap.dedent(CODE.format(name="Maze")) + more)
    assert type(find_environment(f"maze_f/environment.py:{name}")()).__name__ == "Maze"


def test_find_environment_a_class_of_a_module():
    assert find_environment("tests.envs.worlds:World") is World


def test_find_environment_a_registered_name(monkeypatch):
    monkeypatch.setattr(environments, "_entries", {"maze": World})
    assert find_environment("maze") is World


def test_find_environment_a_folder_comes_before_a_registered_name(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_entries", {"maze_g": World})
    folder(tmp_path / "maze_g", name="FromFolder")
    assert find_environment("maze_g").__name__ == "FromFolder"


# What is not ----------------------------------------------------------------------------------


def test_find_environment_an_unknown_name_reports_what_it_could_be_and_what_was_near(monkeypatch):
    monkeypatch.setattr(environments, "_entries", {"maze": World})
    with pytest.raises(LoadError, match=r"'maez' is not a folder.*did you mean 'maze'\?"):
        find_environment("maez")


@pytest.mark.parametrize("target", ["nowhere/at/all", "environment.py"])
def test_find_environment_what_is_neither_a_folder_nor_a_spec_nor_registered(target):
    with pytest.raises(LoadError, match=r"is not a folder, not module:name"):
        find_environment(target)


def test_find_environment_a_folder_without_an_environment_file_reports_where_to_put_the_class(
    tmp_path,
):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoadError, match=r"empty has no environment\.py; put .* file\.py:name"):
        find_environment("empty")


def test_find_environment_a_folder_named_environment_py_is_no_file(tmp_path):
    (tmp_path / "odd" / "environment.py").mkdir(parents=True)
    with pytest.raises(LoadError, match=r"odd has no environment\.py"):
        find_environment("odd")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n", "none"),
        ("from tests.envs.worlds import World\n", "none"),
        ("from tests.envs.worlds import World\nclass _Maze(World):\n    pass\n", "none"),
        (
            "from tests.envs.worlds import World\nclass A(World):\n    pass\n"
            "class B(World):\n    pass\n",
            r"\['A', 'B'\]",
        ),
    ],
    ids=["nothing", "only imported", "only private", "two"],
)
def test_find_environment_a_folder_with_no_or_two_classes_reports_which_and_how_to_name_one(
    tmp_path, text, problem
):
    path = folder(tmp_path / "maze_h", text)
    with pytest.raises(LoadError, match=rf"found {problem}.*environment\.py:") as caught:
        find_environment(str(path))
    assert caught.value.spec == str(path)


@pytest.mark.parametrize("package", [False, True], ids=["folder", "package"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("raise OSError('no game')\n", "OSError: no game"),
        ("def broken(:\n", "SyntaxError"),
        ("import absent_i\n", "No module named 'absent_i'"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    ],
    ids=["raises", "syntax", "import", "exits"],
)
def test_find_environment_a_folder_that_fails_to_import_reports_why_with_its_own_traceback(
    tmp_path, text, problem, package
):
    path = folder(tmp_path / "maze_i", text, package=package)
    with pytest.raises(LoadError, match=problem) as caught:
        find_environment(str(path))
    assert os.path.join("maze_i", "environment.py") in caught.value.traceback
    assert "guerdon/envs/registry" not in caught.value.traceback


def test_find_environment_a_package_that_fails_to_import_can_be_fixed_and_found(tmp_path):
    path = folder(tmp_path / "maze_j", "raise OSError\n", package=True)
    with pytest.raises(LoadError):
        find_environment(str(path))
    folder(path)
    assert find_environment(str(path)).__name__ == "Maze"


@pytest.mark.parametrize("name", ["Board", "SOON", "Value"])
def test_find_environment_a_spec_of_something_else_is_refused(name):
    with pytest.raises(LoadError, match="must be an Environment class or a function"):
        find_environment(f"tests.envs.worlds:{name}")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("tests.envs.worlds:Absent", "has no 'Absent'"),
        ("absent_k:Maze", "there is no module 'absent_k'"),
        ("absent_k.py:Maze", r"there is no file .*absent_k\.py"),
        (":Maze", "names nothing"),
        ("absent_k:", "names nothing"),
    ],
)
def test_find_environment_reports_the_part_of_a_spec_that_does_not_exist(target, problem):
    with pytest.raises(LoadError, match=problem):
        find_environment(target)
