"""Installed packages that programs may import."""

import importlib.metadata
import sys

import pytest

from guerdon import open_sandbox
from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox import Program

FAILS = """
try:
    import {name}
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def with_packages(level):
    """A sandbox whose programs may import numpy, and a package that requires others."""
    with open_sandbox(level, workers=1, packages=["NumPy", "jsonschema"]) as sandbox:
        yield sandbox


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs packages, given as their modules by file name."""
    for folder in (tmp_path, *tmp_path.parents[:4]):  # another user reads them
        folder.chmod(folder.stat().st_mode | 0o055)
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, files, requires=()):
        info = f"{name}-1.0.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        listed = {**files, f"{info}/METADATA": "\n".join(lines) + "\n"}
        listed[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in listed)
        for file, text in listed.items():
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return install


def test_open_sandbox_packages_can_be_imported(with_packages, printed):
    program = "import numpy, numpy.linalg; print(numpy.linalg.norm(numpy.array([3, 4])))"
    assert printed(with_packages, program) == "5.0\n"


def test_open_sandbox_packages_are_imported_before_the_calls(with_packages, printed):
    assert printed(with_packages, "import sys; print('numpy' in sys.modules)") == "True\n"


def test_open_sandbox_packages_include_what_they_require(with_packages, printed):
    program = "import jsonschema, attr; jsonschema.validate(1, {'type': 'integer'}); print(2)"
    assert printed(with_packages, program) == "2\n"


def test_open_sandbox_packages_have_their_metadata(with_packages, printed):
    program = "from importlib.metadata import version; print(version('numpy'))"
    assert printed(with_packages, program) == importlib.metadata.version("numpy") + "\n"


@pytest.mark.parametrize("name", ["pydantic", "guerdon", "landlockpy"])
def test_open_sandbox_packages_hide_the_others(with_packages, printed, name):
    assert printed(with_packages, FAILS.format(name=name)) == f"No module named {name!r}\n"


def test_open_sandbox_packages_leave_the_files_of_others_unreadable(with_packages, level):
    if level != "strict" or sys.prefix == sys.base_prefix:
        pytest.skip("only strict protects files, of a virtual environment")
    file = importlib.metadata.distribution("pydantic").locate_file("pydantic/__init__.py")
    execution = with_packages.run(f"open({str(file)!r})")
    assert "PermissionError" in execution.stderr


def test_run_pair_lets_both_programs_import_packages(with_packages):
    executions = with_packages.run_pair(
        Program("import numpy, os; os.write(3, bytes(numpy.arange(3, dtype='u1')))"),
        Program("import numpy, os; print(numpy.frombuffer(os.read(3, 9), 'u1').sum())"),
    )
    assert executions[1].stdout == "3\n"


def test_open_sandbox_packages_find_modules_of_every_form(level, install, printed):
    install("one_file", {"one_file.py": "import needed\nx = needed.x\n"}, ["needed", "missing"])
    install("needed", {"needed/__init__.py": "x = 5\n"})
    install("shared_part", {"shared/part/__init__.py": "y = 6\n"})
    program = "import one_file, shared.part; print(one_file.x, shared.part.y)"
    with open_sandbox(level, workers=1, packages=["one-file", "shared_part"]) as sandbox:
        assert printed(sandbox, program) == "5 6\n"


def test_open_sandbox_packages_whose_import_fails_fail_in_the_program(level, install, printed):
    install("broken", {"broken.py": "import nothing_at_all\n"})
    with open_sandbox(level, workers=1, packages=["broken"]) as sandbox:
        program = FAILS.format(name="broken")
        assert printed(sandbox, program) == "No module named 'nothing_at_all'\n"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted on Linux")
def test_open_sandbox_refuses_a_package_that_leaves_a_thread_running(level, install):
    text = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    install("threaded", {"threaded.py": text})
    with pytest.raises(SandboxError, match="importing threaded starts a thread"):
        open_sandbox(level, workers=1, packages=["threaded"])


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        (["no-such-package"], "'no-such-package', which isn't installed"),
        (["nump"], "did you mean 'numpy'"),
        (["yaml"], "did you mean 'PyYAML'"),
        ([""], "''"),
        ("numpy", "must be a list, got 'numpy'"),
        ([3], r"`packages\[0\]` must be of type str, got 3"),
    ],
)
def test_open_sandbox_refuses_invalid_packages(level, packages, words):
    with pytest.raises(InvalidArgumentError, match=words):
        open_sandbox(level, workers=1, packages=packages)


def test_open_sandbox_refuses_an_editable_installation(level, install):
    install("edited", {"__editable__.edited-1.0.pth": "/somewhere\n"})
    with pytest.raises(InvalidArgumentError, match="'edited', whose installation lists no modules"):
        open_sandbox(level, workers=1, packages=["edited"])
