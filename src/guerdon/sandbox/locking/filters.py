"""Filters of system calls: policies, their compilation to classic BPF, and loading.

The kernel runs a filter at each system call, on a ``struct seccomp_data``: the number of the call,
the architecture it was made for, and six arguments of 64 bits. The filter returns an answer.
Numbers are found by binary search, since the kernel runs a filter once for every number when it is
loaded.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from bisect import bisect_left
from dataclasses import dataclass

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.locking.syscalls import HIGHEST, Architecture, call

# What the kernel does with a call (linux/seccomp.h); an errno is the low half of its answer.
_ERRNO = 0x0005_0000
ALLOW = 0x7FFF_0000
KILL = 0x8000_0000
NOTHING = _ERRNO | 0  # does nothing and reports success
REFUSE = _ERRNO | 1  # EPERM
ABSENT = _ERRNO | 38  # ENOSYS: as on an older kernel, so that the C library falls back
UNSUPPORTED = _ERRNO | 95  # ENOTSUP: as on a file system that doesn't support it

# Replaced by the id of the process when the filter is loaded. No 32-bit argument has this value.
OWN_PID = 1 << 40

# linux/bpf_common.h and linux/seccomp.h
LOAD, AND, RETURN = 0x20, 0x54, 0x06
JUMP, IF_EQUAL, IF_AT_LEAST = 0x05, 0x15, 0x35
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
# A conditional jump's two distances have a byte each.
FARTHEST = 255
# x86-64: calls of the x32 kind have this bit in their number.
X32 = 0x4000_0000
SECCOMP_SET_MODE_FILTER = 1

_WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one argument; the methods of `arg` create it.

    Attributes:
        index: Which argument, from 0.
        values: What it is compared with.
        mask: The bits of it that are compared.
        wide: Whether all 64 bits are compared, with a single value, as for a pointer. Otherwise
            the low 32 are, since the kernel ignores the others of an ``int``.
        negated: Whether it must differ from all values.
    """

    index: int
    values: tuple[int, ...]
    mask: int = _WORD
    wide: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class arg:
    """An argument of a system call, by its place from 0.

    Example:
        >>> from guerdon.sandbox.locking.filters import arg
        >>> arg(1).among(0, 1).values
        (0, 1)
    """

    index: int

    def among(self, *values: int, mask: int = _WORD) -> Condition:
        """The argument, masked, is one of these values."""
        return Condition(self.index, values, mask)

    def is_not(self, *values: int, mask: int = _WORD) -> Condition:
        """The argument, masked, is none of these values."""
        return Condition(self.index, values, mask, negated=True)

    def is_long(self, value: int) -> Condition:
        """The argument is this value in all 64 bits."""
        return Condition(self.index, (value,), wide=True)


# What is done with a call: an answer, or the conditions of each use that is allowed.
Alternatives = tuple[tuple[Condition, ...], ...]
Verdict = int | Alternatives


@dataclass(frozen=True, slots=True)
class Rule:
    """A verdict on some system calls; `allow` creates those that allow.

    Several rules with conditions for one call are alternatives.

    Attributes:
        names: The calls, with spaces between them.
        verdict: An answer, or alternative conditions under which they are allowed.
    """

    names: str
    verdict: Verdict


def allow(names: str, *conditions: Condition) -> Rule:
    """Return a rule that allows calls if all conditions are true.

    Args:
        names: The calls, with spaces between them.
        *conditions: Conditions on their arguments.
    """
    return Rule(names, (conditions,) if conditions else ALLOW)


@dataclass(frozen=True, slots=True)
class Policy:
    """The answers of a filter.

    Attributes:
        name: Its name.
        rules: The rules. Uses that fulfil no condition of a named call are refused.
        on_top: Whether the filter adds to another one, and so allows all other calls. Otherwise it
            refuses them, reports newer calls as absent, and kills a process that makes calls of
            another architecture.
    """

    name: str
    rules: tuple[Rule, ...]
    on_top: bool = False


# Code, distance if true, distance if false, value.
Instruction = tuple[int, int, int, int]
Block = list[Instruction]


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


class Filter:
    """A filter in memory in the kernel's format, so that loading it is one system call.

    It can't be removed, and applies to children too. It is created before a fork and loaded after.

    Args:
        code: The instructions, 8 bytes each: ``struct sock_filter``.
        pid_at: Offsets at which the id of the process is inserted.
        seccomp: The number of seccomp(2).
    """

    def __init__(self, code: bytes, pid_at: tuple[int, ...], seccomp: int) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        self._pid_at = pid_at
        self._bytes = memoryview(self._code).cast("B")
        self._program = _Program(len(self), ctypes.addressof(self._code))
        # Created here, since writing to a page of memory after the fork copies it.
        self._arguments = (
            *map(ctypes.c_long, (seccomp, SECCOMP_SET_MODE_FILTER, 0)),
            ctypes.byref(self._program),
        )

    def __len__(self) -> int:
        return len(self._bytes) // 8

    def for_process(self, pid: int) -> memoryview:
        """Return the code for the process of this id."""
        for place in self._pid_at:
            self._bytes[place : place + 4] = pid.to_bytes(4, sys.byteorder)
        return self._bytes

    def load(self, pid: int) -> None:
        """Load it for this thread.

        Args:
            pid: The id of this process.

        Raises:
            SandboxError: The kernel refused it.
        """
        self.for_process(pid)
        try:
            call("syscall", *self._arguments)
        except OSError as error:
            raise SandboxError(f"the filter of system calls was refused: {error}") from error


def assemble(policy: Policy, architecture: Architecture) -> Filter:
    """Compile a policy.

    Example:
        >>> from guerdon.sandbox.locking.filters import assemble
        >>> from guerdon.sandbox.locking.rules import function_call
        >>> from guerdon.sandbox.locking.syscalls import ARCHITECTURES
        >>> len(assemble(function_call(), ARCHITECTURES["x86_64"])) < 100
        True

    Args:
        policy: The answers.
        architecture: The processor, which determines the numbers of the calls.

    Raises:
        KeyError: The policy names a call that is not in the table of numbers.
        InvalidArgumentError: It names one in two contrary ways.
    """
    block = _prologue(policy, architecture) + _search(_segments(policy, architecture))
    words = [0 if value == OWN_PID else value & _WORD for *_, value in block]
    code = b"".join(
        struct.pack("=HBBI", *instruction[:3], word)
        for instruction, word in zip(block, words, strict=True)
    )
    places = (8 * at + 4 for at, (*_, value) in enumerate(block) if value == OWN_PID)
    return Filter(code, tuple(places), architecture.number("seccomp") or 0)


def _prologue(policy: Policy, architecture: Architecture) -> Block:
    number: Block = [(LOAD, 0, 0, NUMBER_AT)]
    if policy.on_top:
        return number
    block: Block = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (IF_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, KILL),
        *number,
    ]
    if architecture.name == "x86_64":
        block += [(IF_AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    return block


def _verdicts(policy: Policy, architecture: Architecture) -> dict[int, Verdict]:
    """Return the verdict on each number that the policy names."""
    verdicts: dict[int, Verdict] = {}
    for rule in policy.rules:
        for name in rule.names.split():
            number = architecture.number(name)
            if number is None:
                continue
            if number not in verdicts:
                verdicts[number] = rule.verdict
                continue
            known = verdicts[number]
            if isinstance(known, int) or isinstance(rule.verdict, int):
                raise InvalidArgumentError(f"{policy.name} has two answers to {name}")
            verdicts[number] = known + rule.verdict
    return verdicts


def _segments(policy: Policy, architecture: Architecture) -> list[tuple[int, Verdict]]:
    """Return verdicts in the order of numbers, each with its first number."""
    verdicts = _verdicts(policy, architecture)
    otherwise, newer = (ALLOW, ALLOW) if policy.on_top else (REFUSE, ABSENT)
    segments: list[tuple[int, Verdict]] = []
    for number in range(HIGHEST + 2):
        verdict = verdicts.get(number, otherwise) if number <= HIGHEST else newer
        if not segments or segments[-1][1] != verdict:
            segments.append((number, verdict))
    return segments


def _search(segments: list[tuple[int, Verdict]]) -> Block:
    """Compile a binary search for the segment of a number."""
    if len(segments) == 1:
        verdict = segments[0][1]
        return [(RETURN, 0, 0, verdict)] if isinstance(verdict, int) else _ways(verdict)
    # Halved by the length of the code, not by count, so that jumps stay short.
    sizes = [0]
    for _, verdict in segments:
        sizes.append(sizes[-1] + (1 if isinstance(verdict, int) else 4 * len(verdict)))
    middle = min(max(bisect_left(sizes, sizes[-1] / 2), 1), len(segments) - 1)
    below, above = _search(segments[:middle]), _search(segments[middle:])
    pivot = segments[middle][0]
    if len(below) <= FARTHEST:
        return [(IF_AT_LEAST, len(below), 0, pivot), *below, *above]
    return [(IF_AT_LEAST, 0, 1, pivot), (JUMP, 0, 0, len(below)), *below, *above]


def _ways(alternatives: Alternatives) -> Block:
    """Compile alternatives: a use that fits one is allowed, any other refused."""
    block: Block = [(RETURN, 0, 0, REFUSE)]
    for conditions in reversed(alternatives):
        way: Block = [(RETURN, 0, 0, ALLOW)]
        for condition in reversed(conditions):
            way = _check(condition, failing=len(way)) + way
        block = way + block
    return block


def _check(condition: Condition, *, failing: int) -> Block:
    """Compile a condition: if it is false, ``failing`` instructions after it are skipped."""
    low = ARGUMENTS_AT + 8 * condition.index
    if condition.wide:
        value = condition.values[0]
        return [
            (LOAD, 0, 0, low + 4),
            (IF_EQUAL, 0, failing + 2, value >> 32),
            (LOAD, 0, 0, low),
            (IF_EQUAL, 0, failing, value & _WORD),
        ]
    block: Block = [(LOAD, 0, 0, low)]
    if condition.mask != _WORD:
        block.append((AND, 0, 0, condition.mask))
    last = len(condition.values) - 1
    for at, value in enumerate(condition.values):
        rest = last - at
        if condition.negated:
            block.append((IF_EQUAL, rest + failing, 0, value))
        else:
            block.append((IF_EQUAL, rest, 0 if rest else failing, value))
    return block
