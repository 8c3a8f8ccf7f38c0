"""Classic BPF: the filter that a policy stands for, in the form that the kernel loads.

A filter is run at each system call, over ``struct seccomp_data``: the call's number, the
architecture it was made for, and six arguments of 64 bits. It ends in an answer. Numbers are found
by halving, since the kernel runs a filter once for every number when it is loaded.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass

from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.locking.conditions import (
    ALLOW,
    KILL,
    OWN_PID,
    REFUSE,
    Condition,
    Policy,
)
from guerdon.sandbox.locking.syscalls import HIGHEST, Architecture

__all__ = ["Filter", "assemble"]

# linux/bpf_common.h and linux/seccomp.h
LOAD, AND, RETURN = 0x20, 0x54, 0x06
JUMP, IF_EQUAL, IF_AT_LEAST = 0x05, 0x15, 0x35
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
# A conditional jump's two distances have a byte each.
FARTHEST = 255
# x86-64: calls of the x32 kind have this bit in their number.
X32 = 0x4000_0000
MOST_INSTRUCTIONS = 4096

# Code, distance if true, distance if false, value.
Instruction = tuple[int, int, int, int]
Block = list[Instruction]
# What is done with a number: an answer, or an answer for each way to use it.
Alternatives = tuple[tuple[Condition, ...], ...]
Verdict = int | Alternatives


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter, ready to be loaded.

    Attributes:
        code: Its instructions, 8 bytes each, as of ``struct sock_filter``.
        pid_at: Where in it the number of the process goes.
    """

    code: bytes
    pid_at: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.code) // 8

    def for_process(self, pid: int) -> bytes:
        """The code, for the process of that number."""
        code = bytearray(self.code)
        for place in self.pid_at:
            struct.pack_into("=I", code, place, pid)
        return bytes(code)


def assemble(policy: Policy, architecture: Architecture) -> Filter:
    """The filter of a policy.

    Example:
        >>> from guerdon.sandbox.locking.bpf import assemble
        >>> from guerdon.sandbox.locking.rules import function_call
        >>> from guerdon.sandbox.locking.syscalls import ARCHITECTURES
        >>> len(assemble(function_call(), ARCHITECTURES["x86_64"])) < 100
        True

    Args:
        policy: What it is to say.
        architecture: Whose numbers it has.

    Raises:
        InvalidArgumentError: The policy names an unknown call, or one in two contrary ways.
    """
    block = _prologue(policy, architecture)
    block += _search(_segments(_verdicts(policy, architecture), policy), policy.otherwise)
    if len(block) > MOST_INSTRUCTIONS:
        raise InvalidArgumentError(
            f"{policy.name} takes {len(block)} instructions; the kernel loads {MOST_INSTRUCTIONS}"
        )
    words = [0 if value == OWN_PID else value & 0xFFFF_FFFF for *_, value in block]
    code = b"".join(
        struct.pack("=HBBI", *instruction[:3], word)
        for instruction, word in zip(block, words, strict=True)
    )
    places = (8 * at + 4 for at, (*_, value) in enumerate(block) if value == OWN_PID)
    return Filter(code, tuple(places))


def _prologue(policy: Policy, architecture: Architecture) -> Block:
    number: Block = [(LOAD, 0, 0, NUMBER_AT)]
    if not policy.native_only:
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
    """What is done with each number that the policy names."""
    verdicts: dict[int, Verdict] = {}
    for group in policy.groups:
        for call in group.calls:
            number = architecture.number(call.name)
            if number is None:
                continue
            known = verdicts.get(number, ())
            if isinstance(known, int) or (known and not call.only):
                raise InvalidArgumentError(f"{policy.name} says two things of {call.name}")
            verdicts[number] = (*known, call.only) if call.only else group.answer
    return verdicts


def _segments(verdicts: dict[int, Verdict], policy: Policy) -> list[tuple[int, Verdict]]:
    """The numbers from which on a verdict holds, in their order."""
    segments: list[tuple[int, Verdict]] = []
    for number in range(HIGHEST + 1):
        verdict = verdicts.get(number, policy.otherwise)
        if not segments or segments[-1][1] != verdict:
            segments.append((number, verdict))
    if segments[-1][1] != policy.newer:
        segments.append((HIGHEST + 1, policy.newer))
    return segments


def _search(segments: list[tuple[int, Verdict]], otherwise: int) -> Block:
    """Find the segment that a number is in."""
    if len(segments) == 1:
        verdict = segments[0][1]
        return [(RETURN, 0, 0, verdict)] if isinstance(verdict, int) else _ways(verdict, otherwise)
    # Halved by what there is to write, not by count, so that jumps stay short.
    sizes = [0]
    for _, verdict in segments:
        sizes.append(sizes[-1] + (1 if isinstance(verdict, int) else 4 * len(verdict)))
    middle = min(max(bisect_left(sizes, sizes[-1] / 2), 1), len(segments) - 1)
    below = _search(segments[:middle], otherwise)
    above = _search(segments[middle:], otherwise)
    pivot = segments[middle][0]
    if len(below) <= FARTHEST:
        return [(IF_AT_LEAST, len(below), 0, pivot), *below, *above]
    return [(IF_AT_LEAST, 0, 1, pivot), (JUMP, 0, 0, len(below)), *below, *above]


def _ways(alternatives: Alternatives, otherwise: int) -> Block:
    """Allow what fits one of the alternatives."""
    # A policy that allows the rest refuses other uses of what it names.
    block: Block = [(RETURN, 0, 0, REFUSE if otherwise == ALLOW else otherwise)]
    for conditions in reversed(alternatives):
        way: Block = [(RETURN, 0, 0, ALLOW)]
        for condition in reversed(conditions):
            way = _check(condition, failing=len(way)) + way
        block = way + block
    return block


def _check(condition: Condition, *, failing: int) -> Block:
    """Go on where a condition holds, and otherwise ``failing`` instructions farther."""
    if failing + len(condition.values) + 2 > FARTHEST:
        raise InvalidArgumentError(f"too many values for argument {condition.index}")
    low = ARGUMENTS_AT + 8 * condition.index
    if condition.wide:
        value = condition.values[0]
        return [
            (LOAD, 0, 0, low + 4),
            (IF_EQUAL, 0, failing + 2, value >> 32),
            (LOAD, 0, 0, low),
            (IF_EQUAL, 0, failing, value & 0xFFFF_FFFF),
        ]
    block: Block = [(LOAD, 0, 0, low)]
    if condition.mask != 0xFFFF_FFFF:
        block.append((AND, 0, 0, condition.mask))
    last = len(condition.values) - 1
    for at, value in enumerate(condition.values):
        rest = last - at
        if condition.negated:
            block.append((IF_EQUAL, rest + failing, 0, value))
        else:
            block.append((IF_EQUAL, rest, 0 if rest else failing, value))
    return block
