"""Opening a sandbox: levels, plug-ins, other systems, full disks."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import guerdon
from guerdon import Limits, Sandbox, open_sandbox
from guerdon.errors import InvalidArgumentError, SandboxError, SandboxUnavailableError
from guerdon.sandbox.levels import local_level


def test_open_sandbox_opens_the_named_level(shared, level):
    assert shared.level == level
    assert isinstance(shared, Sandbox)
    assert shared.promise


def test_open_sandbox_opens_strict_for_auto(level):
    if level != "strict":
        pytest.skip("auto takes nothing weaker")
    with open_sandbox(workers=1) as sandbox:
        assert sandbox.level == "strict"


def test_open_sandbox_limits_are_the_default_of_each_call(level):
    with open_sandbox(level, workers=1, limits=Limits(output_bytes=10)) as sandbox:
        assert sandbox.run("print('x' * 20)").ending == "output_limit"
        assert sandbox.run("print('x' * 20)", limits=Limits()).ending == "ok"


def test_open_sandbox_allow_read_lets_programs_read(level, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "file").write_text("read me")
    for each in (folder, *folder.parents[:4]):
        each.chmod(each.stat().st_mode | 0o055)
    program = (
        f"try: print(open({str(folder / 'file')!r}).read())\n"
        "except OSError as error: print(type(error).__name__)"
    )
    with open_sandbox(level, workers=1, allow_read=[folder]) as sandbox:
        assert sandbox.run(program).stdout == "read me\n"
    with open_sandbox(level, workers=1) as sandbox:
        expected = "PermissionError\n" if level == "strict" else "read me\n"
        assert sandbox.run(program).stdout == expected


def test_open_sandbox_refuses_allow_read_of_a_missing_path(level, tmp_path):
    with pytest.raises(InvalidArgumentError, match="allow_read: there is no"):
        open_sandbox(level, workers=1, allow_read=[tmp_path / "nothing"])


@pytest.mark.parametrize(
    "given", [{"allow_read": "/"}, {"allow_read": Path("/")}, {"limits": {"seconds": 1}}], ids=str
)
def test_open_sandbox_refuses_arguments_of_a_wrong_type(level, given):
    with pytest.raises(InvalidArgumentError, match=next(iter(given))):
        open_sandbox(level, workers=1, **given)


@pytest.mark.parametrize("name", ["none", "docker", "", "STRICT", "x" * 1000])
def test_open_sandbox_lists_the_levels_for_an_unknown_one(name):
    with pytest.raises(InvalidArgumentError, match="`level` must be 'auto', 'strict'") as caught:
        open_sandbox(name)
    assert len(str(caught.value)) < 250


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """A package with a sandbox under an entry point, installed as far as anybody can see."""
    folder = tmp_path / "packages"
    info = folder / "standin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: standin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[guerdon.sandboxes]\nstandin = standin_sandbox:Standin\nbroken = standin_sandbox:nothing\n"
    )
    (folder / "standin_sandbox.py").write_text(
        "class Standin:\n    def __init__(self, *, workers, limits, packages, allow_read):\n"
        "        self.given = workers, limits, packages, allow_read\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("standin_sandbox", None)


def test_open_sandbox_passes_its_arguments_to_a_plug_in(plug_in):
    opened = open_sandbox(
        "standin", workers=3, limits=Limits(seconds=1), packages=["numpy"], allow_read=[Path("/x")]
    )
    assert opened.given == (3, Limits(seconds=1), ["numpy"], ["/x"])


def test_open_sandbox_lists_plug_ins(plug_in):
    with pytest.raises(InvalidArgumentError, match="'process', 'broken' or 'standin'"):
        open_sandbox("other")


@pytest.mark.parametrize(("platform", "words"), [("darwin", "macOS"), ("win32", "Windows")])
@pytest.mark.parametrize("level", ["strict", "auto"])
def test_open_sandbox_strict_requires_linux(monkeypatch, platform, words, level):
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(SandboxUnavailableError, match=words) as caught:
        open_sandbox(level)
    assert caught.value.level == "strict"
    assert caught.value.missing
    assert "--sandbox process" in str(caught.value)


def test_open_sandbox_process_requires_fork(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SandboxUnavailableError, match="Windows"):
        open_sandbox("process")


def test_open_sandbox_process_works_on_macos(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert local_level("process").name == "process"


WITHOUT = """
    import sys
    LACKING = {"fcntl", "resource", "pwd", "grp", "termios", "landlockpy"}
    class Lacking:
        def find_spec(self, name, path=None, target=None):
            if name in LACKING: raise ModuleNotFoundError(f"no {name}", name=name)
    for name in LACKING: sys.modules.pop(name, None)
    sys.meta_path.insert(0, Lacking())
    import guerdon, guerdon.sandbox, guerdon.cli.app
    from guerdon import EvalSandbox, Limits, open_sandbox
    from guerdon.rubrics import RewardSource
    from guerdon.sandbox import Program, probe
    import guerdon.sandbox.local_sandbox
    import guerdon.sandbox.function_pool, guerdon.sandbox.locking.lock
    import guerdon.rubrics.sandboxed.eval_sandbox, guerdon.sandbox.testing.checking
    source = RewardSource("def f(messages): return 1.0", "f")
    with EvalSandbox(source, level="none") as sandbox:
        print(sandbox.evaluate([]).score)
    sys.platform = "win32"
    for level in ("strict", "process", "auto"):
        for opened in (lambda: open_sandbox(level), lambda: EvalSandbox(source, level=level)):
            try: opened()
            except guerdon.errors.SandboxUnavailableError as error: print(len(error.missing))
    print(probe("strict").works, probe("process").works)
"""


def test_import_works_without_unix_modules():
    packages = [each for each in sys.path if each.endswith("site-packages")]
    path = [str(Path(guerdon.__file__).parents[1]), *packages]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["1.0", *["1"] * 6, "False", "False"]


def test_open_sandbox_raises_for_a_missing_temporary_folder(level, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    with pytest.raises(SandboxError, match="can't"):
        open_sandbox(level, workers=1)


@pytest.mark.parametrize("name", ["with a space", "é", "x" * 200, "-rf", "quo'te\"s", "new\nline"])
def test_open_sandbox_accepts_any_name_of_a_temporary_folder(level, monkeypatch, temporary, name):
    folder = temporary / name
    folder.mkdir(mode=0o755)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with open_sandbox(level, workers=1) as sandbox:
        execution = sandbox.run("open('a', 'w').write('x'); print(open('a').read())")
    assert execution.stdout == "x\n"
    assert list(folder.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0755", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root mounts")
    if (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    for each in folder.parents[:4]:
        each.chmod(each.stat().st_mode | 0o011)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_run_reports_a_full_disk(level, monkeypatch, small_disk):
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    with open_sandbox(level, workers=1) as sandbox:
        filling = sandbox.run(
            "open('a', 'wb', 0).write(b'x' * 200_000); open('b', 'wb', 0).write(b'x')"
        )
        assert "No space left" in filling.stderr
        assert filling.ending in ("nonzero", "output_limit")
        with pytest.raises(SandboxError, match="No space left"):
            sandbox.run("", files={"big": b"x" * 200_000})
        assert sandbox.run("print(1)").stdout == "1\n"
    (small_disk / "filler").write_bytes(b"x" * (60 << 10))
    with pytest.raises(OSError, match="No space"):
        (small_disk / "more").write_bytes(b"x" * 8192)
    with open_sandbox(level, workers=1) as sandbox:
        assert sandbox.run("print(1)").stdout == "1\n"
