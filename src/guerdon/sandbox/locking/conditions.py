"""What a system call's arguments must be: the words that the rules are written in."""

from __future__ import annotations

from dataclasses import dataclass

from guerdon.errors import InvalidArgumentError

__all__ = [
    "ABSENT",
    "ALLOW",
    "Argument",
    "Call",
    "Condition",
    "Group",
    "KILL",
    "NOTHING",
    "OWN_PID",
    "Policy",
    "REFUSE",
    "UNSUPPORTED",
    "arg",
]

# What the kernel does with a call (linux/seccomp.h); an errno is the low half of its answer.
_ERRNO = 0x0005_0000
ALLOW = 0x7FFF_0000
KILL = 0x8000_0000
NOTHING = _ERRNO | 0  # nothing is done, and the caller is told that it worked
REFUSE = _ERRNO | 1  # EPERM
ABSENT = _ERRNO | 38  # ENOSYS: as on an older kernel, so that the C library takes another way
UNSUPPORTED = _ERRNO | 95  # ENOTSUP: as on a file system that can't do it

# Stands for the process's own number, which is known only when the filter is loaded. It is beyond
# what an argument's word can hold, so that no number is taken for it.
OWN_PID = 1 << 40

_WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Condition:
    """What one argument must be; `arg` writes it.

    Attributes:
        index: Which argument, from 0.
        values: What it is compared with.
        mask: The bits of it that are looked at.
        wide: All 64 bits are looked at, as of a pointer. Otherwise the low 32, which is all that
            the kernel looks at where it takes an ``int``: the others could be anything.
        negated: It must be none of the values.
    """

    index: int
    values: tuple[int, ...]
    mask: int = _WORD
    wide: bool = False
    negated: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.index <= 5:
            raise InvalidArgumentError(f"argument {self.index}; a system call has 0 to 5")
        if self.wide and (len(self.values) != 1 or self.negated or self.mask != _WORD):
            raise InvalidArgumentError("a 64-bit argument is compared with one value, as it is")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a system call, by its place."""

    index: int

    def among(self, *values: int) -> Condition:
        """It is one of these."""
        return Condition(self.index, values)

    def equals(self, value: int) -> Condition:
        """It is this."""
        return Condition(self.index, (value,))

    def is_not(self, *values: int) -> Condition:
        """It is none of these."""
        return Condition(self.index, values, negated=True)

    def is_null(self) -> Condition:
        """It is a pointer to nothing."""
        return Condition(self.index, (0,), wide=True)

    def is_long(self, value: int) -> Condition:
        """It is this, in all 64 bits."""
        return Condition(self.index, (value,), wide=True)

    def without(self, *flags: int) -> Condition:
        """It has none of these flags."""
        bits = 0
        for flag in flags:
            bits |= flag
        return Condition(self.index, (0,), mask=bits)

    def having(self, flag: int) -> Condition:
        """It has this flag."""
        return Condition(self.index, (flag,), mask=flag)

    def masked(self, mask: int, *values: int) -> Condition:
        """Of these bits it has one of these."""
        return Condition(self.index, values, mask=mask)

    def not_masked(self, mask: int, *values: int) -> Condition:
        """Of these bits it has none of these."""
        return Condition(self.index, values, mask=mask, negated=True)


def arg(index: int) -> Argument:
    """An argument, by its place from 0.

    Example:
        >>> from guerdon.sandbox.locking.conditions import arg
        >>> arg(1).among(0, 1).values
        (0, 1)
    """
    return Argument(index)


class Call:
    """A system call of which only some uses are meant: those for which all conditions hold.

    Several of one name in a policy are alternatives.
    """

    __slots__ = ("name", "only")

    def __init__(self, name: str, *only: Condition) -> None:
        self.name = name
        self.only = only


class Group:
    """System calls that are there for one purpose.

    Args:
        why: Why they may be made, or not.
        *calls: Their names, with spaces between them, or `Call` where only some uses are meant.
        answer: What is done with them.
    """

    __slots__ = ("answer", "calls", "why")

    def __init__(self, why: str, *calls: str | Call, answer: int = ALLOW) -> None:
        self.why = why
        self.answer = answer
        self.calls: list[Call] = []
        for call in calls:
            self.calls += [call] if isinstance(call, Call) else map(Call, call.split())
        if answer != ALLOW and any(call.only for call in self.calls):
            raise InvalidArgumentError(f"{why!r}: only what is allowed can have conditions")


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that a filter has to say.

    Attributes:
        name: What it is called.
        groups: The calls it names.
        otherwise: What is done with those it doesn't name, and with other uses of a `Call`.
        newer: What is done with those that came into the kernel after these rules.
        native_only: It ends a process that calls in another architecture's way.
    """

    name: str
    groups: tuple[Group, ...]
    otherwise: int = REFUSE
    newer: int = ABSENT
    native_only: bool = True
