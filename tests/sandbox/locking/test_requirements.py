from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from guerdon.errors import SandboxError
from guerdon.sandbox.locking import lock, privileges
from guerdon.sandbox.locking.lock import StrictLock, facts, requirements
from guerdon.sandbox.locking.privileges import Capability

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can lack these")


@pytest.mark.parametrize(
    ("platform", "name"), [("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")]
)
def test_requirements_name_another_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, name: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert requirements() == [
        f"this is {name}; strict needs Linux: run in a Linux container, or --sandbox process"
    ]
    assert facts() == {"platform": platform}


@on_linux
def test_requirements_name_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "landlockpy", None)
    assert "landlockpy is not installed: pip install landlockpy==0.2.0" in requirements()
    assert facts()["Landlock"] == "landlockpy is not installed"


@on_linux
def test_requirements_name_a_kernel_without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "abi_version", lambda: 0)
    assert any("has no Landlock" in line and "lsm=" in line for line in requirements())


@on_linux
def test_requirements_name_a_container_without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(lock, "abi_version", refuse)
    assert any("Landlock is refused" in line for line in requirements())
    assert facts()["Landlock"].startswith("refused")


@on_linux
def test_requirements_name_an_unknown_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "this_architecture", lambda: None)
    assert any("use a 64-bit Python on x86_64 or aarch64" in line for line in requirements())


@on_linux
def test_requirements_name_missing_capabilities_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(privileges, "permitted_capabilities", lambda: 1 << Capability.CAP_KILL)
    named = [line for line in requirements() if line.startswith("root has no CAP_")]
    assert [line.split(":")[0] for line in named] == [
        "root has no CAP_SETUID here",
        "root has no CAP_SETGID here",
    ]
    assert "--cap-add=SETUID" in named[0]


@on_linux
def test_requirements_name_a_namespace_with_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(privileges, "_mapped_users", lambda: [range(1)])
    assert any("no other user to become" in line for line in requirements())
    with pytest.raises(SandboxError, match="all unassigned user ids are taken"):
        privileges.ReservedUser()


@on_linux
@pytest.mark.parametrize(
    ("mapped", "within"),
    [(range(1 << 32), range(66_000, 100_000)), (range(1 << 16), range(60_578, 61_184))],
    ids=["machine", "container"],
)
def test_reserved_user_is_an_unassigned_one(
    monkeypatch: pytest.MonkeyPatch, mapped: range, within: range
) -> None:
    monkeypatch.setattr(privileges, "_mapped_users", lambda: [mapped])
    assert privileges.has_spare_users()
    with closing(privileges.ReservedUser()) as user:
        assert user.uid in within


@on_linux
def test_unreachable_lists_what_others_cannot_read(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    (shut / "inner").mkdir(parents=True)
    shut.chmod(0o700)
    (tmp_path / "link").symlink_to(shut / "inner")
    paths = ["/dev/null", "/", str(shut / "inner"), str(tmp_path / "link"), "/nowhere/at/all"]
    assert privileges.unreachable(paths) == paths[2:]


@on_linux
@pytest.mark.parametrize(
    ("permitted", "kept"),
    [
        (1 << 2 | 1 << 1, Capability.CAP_DAC_READ_SEARCH),
        (1 << 1 | 1 << 7, Capability.CAP_DAC_OVERRIDE),
        (1 << 7, None),
    ],
    ids=["machine", "container", "neither"],
)
def test_reading_capability_is_the_narrowest(
    monkeypatch: pytest.MonkeyPatch, permitted: int, kept: int | None
) -> None:
    monkeypatch.setattr(privileges, "permitted_capabilities", lambda: permitted)
    assert privileges.reading_capability() == kept


@on_linux
def test_strict_lock_names_files_that_others_cannot_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(privileges, "reading_capability", lambda: None)
    with pytest.raises(SandboxError, match=r"other users can't read .*: chmod -R o\+rX"):
        StrictLock([str(tmp_path)])


BARE = """
import sys
sys.path[:0] = sys.argv[1:3]
if sys.argv[3] != "linux":
    sys.platform = sys.argv[3]
    sys.modules |= dict.fromkeys(("resource", "landlockpy", "pwd", "grp"))
from guerdon.sandbox.locking import canaries, filters, landlock, lock, privileges, rlimits
from guerdon.sandbox.locking import rules, syscalls
print(lock.requirements() != [] or sys.platform == "linux", "pydantic" in sys.modules)
"""


@pytest.mark.parametrize("platform", [sys.platform, "darwin"])
def test_locking_imports_only_the_standard_library_and_landlockpy(platform: str) -> None:
    import guerdon

    source = str(Path(guerdon.__file__).parents[1])
    site = next((path for path in sys.path if path.endswith("site-packages")), source)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BARE, source, site, platform],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]


@on_linux
def test_filter_load_raises_if_the_kernel_refuses() -> None:
    from guerdon.sandbox.locking.filters import Filter
    from guerdon.sandbox.locking.syscalls import this_architecture

    architecture = this_architecture()
    if architecture is None:
        pytest.skip("no filter for this architecture")
    number = architecture.number("seccomp")
    assert number is not None
    # No answer at its end: refused whoever loads it.
    unfinished = Filter(bytes.fromhex("2000000000000000"), (), number)
    with pytest.raises(SandboxError, match="the filter of system calls was refused"):
        unfinished.load(os.getpid())
