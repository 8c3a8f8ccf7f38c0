from __future__ import annotations

import sys
from pathlib import Path

import pytest

from guerdon.errors import SandboxError
from guerdon.sandbox.locking import landlock
from guerdon.sandbox.locking.landlock import FileRules, abi_version

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's own")


def test_file_rules_leave_out_what_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    gone = [str(tmp_path / "gone"), str(tmp_path / "file" / "under")]
    rules = FileRules([str(tmp_path), str(tmp_path / "file"), *gone])
    assert rules.paths == {str(tmp_path): True, str(tmp_path / "file"): False}


@on_linux
def test_file_rules_build_raises_without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi_version", lambda: 0)
    with pytest.raises(SandboxError, match="Landlock refused"):
        FileRules([]).build()


@on_linux
def test_abi_version_is_at_most_the_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import landlockpy

    monkeypatch.setattr(landlockpy, "abi_version", lambda: 99)
    assert abi_version() == landlock.KNOWN_ABI


@on_linux
@pytest.mark.parametrize("abi", range(1, 12))
def test_file_rules_build_handles_all_rights_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch, abi: int
) -> None:
    import landlockpy

    made: dict[str, int] = {}
    granted: dict[str, int] = {}

    class Recorded:
        def __init__(self, **given: int) -> None:
            made.update(given)

        def __enter__(self) -> Recorded:
            return self

        def __exit__(self, *_: object) -> None: ...

        def allow_path(self, path: str, access: int) -> None:
            granted[path] = access

        def restrict(self) -> None: ...

    monkeypatch.setattr(landlockpy, "Ruleset", Recorded)
    monkeypatch.setattr(landlock, "abi_version", lambda: abi)
    right = landlockpy.AccessFS
    FileRules(["/usr", "/dev/null", sys.executable]).build("/tmp")
    assert made["handled_fs"] == landlockpy.fs_for_abi(abi)
    assert made["handled_net"] == landlockpy.net_for_abi(abi)
    assert made["scoped"] == landlockpy.scope_for_abi(abi)
    assert made["best_effort"] is False
    assert granted["/usr"] == right.READ_FILE | right.READ_DIR
    assert granted["/dev/null"] == right.READ_FILE | right.WRITE_FILE
    assert granted[sys.executable] == right.READ_FILE
    never = right.EXECUTE | right.MAKE_SYM | right.MAKE_SOCK | right.MAKE_FIFO
    never |= right.MAKE_CHAR | right.MAKE_BLOCK | right.IOCTL_DEV | right.RESOLVE_UNIX
    assert not granted["/tmp"] & never
    assert granted["/tmp"] & right.MAKE_REG
