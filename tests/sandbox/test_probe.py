"""`probe`: whether a level works here."""

import sys

import pytest

from guerdon import open_sandbox
from guerdon.errors import InvalidArgumentError, SandboxError, SandboxUnavailableError
from guerdon.sandbox import probe, worker


def test_probe_reports_a_level_that_works(level):
    found = probe(level)
    assert found.works
    assert found.level == level
    assert found.missing == ()
    assert all(each.blocked for each in found.findings)
    assert bool(found.findings) == (level == "strict")


def test_probe_lists_the_attacks_on_strict(level):
    if level != "strict":
        pytest.skip("process has nothing to attack")
    names = {each.name for each in probe("strict").findings}
    assert {"read /etc/passwd", "make a TCP socket", "kill itself", "start a program"} <= names
    assert len(names) >= 10


@pytest.mark.parametrize("name", ["none", "auto", "docker", ""])
def test_probe_refuses_other_levels(name):
    with pytest.raises(InvalidArgumentError, match="`level` must be 'strict' or 'process'"):
        probe(name)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_probe_reports_what_another_system_lacks(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    found = probe("strict")
    assert not found.works
    assert len(found.missing) == 1
    assert found.findings == ()


def test_open_sandbox_raises_if_an_attack_succeeds(monkeypatch, level):
    if level != "strict":
        pytest.skip("process has nothing to attack")
    allowed = ["/etc/passwd"]
    with pytest.raises(SandboxUnavailableError, match="/etc/passwd") as caught:
        open_sandbox("strict", workers=1, allow_read=allowed)
    assert [each.name for each in caught.value.findings if not each.blocked] == ["read /etc/passwd"]


def test_probe_reports_a_worker_that_cannot_be_started(monkeypatch, level, below):
    before = below()
    monkeypatch.setattr(worker, "_STUB", "raise SystemExit(1)")
    with pytest.raises(SandboxError):
        open_sandbox(level, workers=1)
    found = probe(level)
    assert not found.works
    assert below() <= before
