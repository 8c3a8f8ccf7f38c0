from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from guerdon.sandbox.locking.syscalls import (
    ARCHITECTURES,
    HIGHEST,
    NUMBERS,
    this_architecture,
)
from tests.sandbox.locking.refused_numbers import REFUSED

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
DEFINITION = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(\d+)")


@pytest.mark.parametrize("name", HEADERS)
def test_numbers_equal_those_of_the_kernels_headers(name: str) -> None:
    if not HEADERS[name].exists():
        pytest.skip("the kernel's headers aren't installed")
    defined = {call: int(at) for call, at in DEFINITION.findall(HEADERS[name].read_text())}
    # The generic header names it by the call it is in a kernel of 32 bits.
    defined.setdefault("newfstatat", defined.get("fstatat", -1))
    architecture = ARCHITECTURES[name]
    known = {call: pair[architecture.column] for call, pair in (NUMBERS | REFUSED).items()}
    newest = max(defined.values())
    for call, number in known.items():
        if number is None:
            # As 32-bit kernels have it, or a table that no 64-bit architecture uses any more.
            assert name == "aarch64" or call not in defined, call
        elif number <= newest:
            assert defined[call] == number, call


def test_numbers_are_unique() -> None:
    for column in (0, 1):
        both = [*NUMBERS.values(), *REFUSED.values()]
        numbers = [pair[column] for pair in both if pair[column] is not None]
        assert len(numbers) == len(set(numbers))
        assert max(n for n in numbers if n is not None) <= HIGHEST


def test_architecture_number_raises_for_an_unknown_name() -> None:
    with pytest.raises(KeyError, match="'opne'"):
        ARCHITECTURES["x86_64"].number("opne")


def test_this_architecture_is_none_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert this_architecture() is None
