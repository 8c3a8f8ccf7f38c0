from __future__ import annotations

import struct
from functools import cache

import pytest

from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.locking.filters import (
    ABSENT,
    ALLOW,
    FARTHEST,
    KILL,
    NOTHING,
    OWN_PID,
    REFUSE,
    UNSUPPORTED,
    Filter,
    Policy,
    Rule,
    allow,
    arg,
    assemble,
)
from guerdon.sandbox.locking.rules import function_call, program, template
from guerdon.sandbox.locking.syscalls import ARCHITECTURES, HIGHEST, NUMBERS, Architecture
from tests.sandbox.locking.refused_numbers import REFUSED

PID = 4321
ALL = list(ARCHITECTURES.values())
on_each = pytest.mark.parametrize("architecture", ALL, ids=[a.name for a in ALL])
CALL = function_call()
POLICIES = {
    f"{make.__name__}-{abi}": make(abi) for make in (template, program) for abi in (1, 3, 6, 7)
}
in_each = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
HIGH = 1 << 32


def decide(
    filter: Filter, number: int, *arguments: int, audit: int, pid: int = PID
) -> tuple[int, int]:
    """What a filter answers, and in how many instructions: an interpreter of what it uses."""
    code = filter.for_process(pid)
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    at = steps = word = 0
    while True:
        kind, yes, no, value = struct.unpack_from("=HBBI", code, 8 * at)
        at, steps = at + 1, steps + 1
        match kind:
            case 0x20:
                (word,) = struct.unpack_from("=I", data, value)
            case 0x54:
                word &= value
            case 0x05:
                at += value
            case 0x15:
                at += yes if word == value else no
            case 0x35:
                at += yes if word >= value else no
            case 0x06:
                return value, steps
            case _:
                raise AssertionError(f"instruction {kind:#x}")


assembled = cache(assemble)


def answer(
    policy: Policy, architecture: Architecture, call: str | int, *arguments: int
) -> int | None:
    """The answer of a policy to a call; None where the architecture has no such call."""
    number = architecture.number(call) if isinstance(call, str) else call
    if number is None:
        return None
    filter = assembled(policy, architecture)
    return decide(filter, number, *arguments, audit=architecture.audit)[0]


@on_each
@in_each
def test_assemble_answers_each_number_as_the_policy_does(
    policy: Policy, architecture: Architecture
) -> None:
    filter = assemble(policy, architecture)
    verdicts = {
        architecture.number(name): rule.verdict
        for rule in policy.rules
        for name in rule.names.split()
    }
    plain = {number: verdict for number, verdict in verdicts.items() if isinstance(verdict, int)}
    conditional = verdicts.keys() - plain.keys()
    for number in range(HIGHEST + 1):
        if number not in conditional:
            got, _ = decide(filter, number, audit=architecture.audit)
            assert got == plain.get(number, REFUSE), number
    for number in (HIGHEST + 1, 0x3FFF_FFFF):
        assert decide(filter, number, audit=architecture.audit)[0] == ABSENT


@on_each
@in_each
def test_assemble_kills_on_another_architecture(policy: Policy, architecture: Architecture) -> None:
    filter = assemble(policy, architecture)
    others = {a.audit for a in ALL} | {0x4000_0003, 0x4000_0028} - {architecture.audit}
    for audit in others - {architecture.audit}:
        assert decide(filter, 0, audit=audit)[0] == KILL


def test_assemble_kills_on_x32_calls() -> None:
    architecture = ARCHITECTURES["x86_64"]
    assert answer(POLICIES["template-7"], architecture, 0x4000_0000) == KILL
    assert answer(POLICIES["program-7"], architecture, 0x4000_0000 + 521) == KILL


@on_each
def test_assemble_finds_a_common_call_in_few_instructions(architecture: Architecture) -> None:
    filter = assemble(program(7), architecture)
    for call in ("read", "write", "mmap", "futex", "close"):
        number = architecture.number(call)
        assert number is not None
        assert decide(filter, number, audit=architecture.audit)[1] <= 22


@on_each
def test_function_call_has_a_short_filter(architecture: Architecture) -> None:
    assert len(assemble(function_call(), architecture)) <= 60


@on_each
@in_each
def test_policies_refuse_dangerous_calls(policy: Policy, architecture: Architecture) -> None:
    numbers = [n for pair in REFUSED.values() if (n := pair[architecture.column]) is not None]
    assert len(numbers) > 60
    answers = {number: answer(policy, architecture, number) for number in numbers}
    assert {number: each for number, each in answers.items() if each != REFUSE} == {}


# Each with the arguments of a use, and the expected answer.
USES = {
    "clone-fork": ("clone", (0x0120_0011,), ALLOW),
    "clone-thread": ("clone", (0x003D_0F00,), ALLOW),
    "clone-vfork": ("clone", (0x0000_4111,), ALLOW),
    "clone-whose-end-kills-the-parent": ("clone", (9,), REFUSE),
    "clone-whose-end-stops-the-parent": ("clone", (19,), REFUSE),
    "clone-a-brother": ("clone", (0x8000 | 17,), REFUSE),
    "clone-newuser": ("clone", (0x1000_0000 | 17,), REFUSE),
    "clone-untraced": ("clone", (0x0080_0000 | 17,), REFUSE),
    "clone-high-bits-dont-matter": ("clone", (HIGH | 9,), REFUSE),
    "clone3": ("clone3", (), ABSENT),
    "openat2": ("openat2", (), ABSENT),
    "kill-itself": ("kill", (PID, 9), REFUSE),
    "kill-itself-high-bits": ("kill", (PID, HIGH | 9), REFUSE),
    "kill-its-group": ("kill", (0, 9), REFUSE),
    "kill-everything": ("kill", (HIGH - 1, 9), REFUSE),
    "kill-term": ("kill", (PID, 15), ALLOW),
    "tkill-itself": ("tkill", (PID, 9), REFUSE),
    "tgkill-itself": ("tgkill", (PID, PID, 9), REFUSE),
    "tgkill-abort": ("tgkill", (PID, PID, 6), ALLOW),
    "fcntl-dupfd": ("fcntl", (0, 1030), ALLOW),
    "fcntl-setown": ("fcntl", (0, 8), REFUSE),
    "fcntl-setsig": ("fcntl", (0, 10), REFUSE),
    "fcntl-setown-ex": ("fcntl", (0, 15), REFUSE),
    "fcntl-notify": ("fcntl", (0, 1026), REFUSE),
    "fcntl-setlease": ("fcntl", (0, 1024), REFUSE),
    "ioctl-fionbio": ("ioctl", (0, 0x5421), ALLOW),
    "ioctl-fioasync": ("ioctl", (0, 0x5452), REFUSE),
    "ioctl-fiosetown": ("ioctl", (0, 0x8901), REFUSE),
    "ioctl-tiocsti": ("ioctl", (0, 0x5412), REFUSE),
    "prctl-name": ("prctl", (15,), ALLOW),
    "prctl-pdeathsig-of-another": ("prctl", (1, 15), REFUSE),
    "prctl-seccomp": ("prctl", (22, 1), REFUSE),
    "prctl-dumpable": ("prctl", (4, 1), REFUSE),
    "prctl-subreaper": ("prctl", (36, 1), REFUSE),
    "prctl-keepcaps": ("prctl", (8, 1), REFUSE),
    "prlimit-asks": ("prlimit64", (0, 7, 0, 0x7FFF_0000_0000), ALLOW),
    "prlimit-asks-of-another": ("prlimit64", (1, 7, 0, 1), REFUSE),
    "prlimit-sets": ("prlimit64", (0, 0, 0x7FFF_0000_0000), REFUSE),
    "prlimit-sets-by-a-high-pointer": ("prlimit64", (0, 0, HIGH), REFUSE),
    "personality-asks": ("personality", (0xFFFF_FFFF,), ALLOW),
    "personality-sets": ("personality", (0x0040_0000,), REFUSE),
    "socketpair-stream": ("socketpair", (1, 0o2004001), ALLOW),
    "socketpair-datagrams": ("socketpair", (1, 2), REFUSE),
    "socketpair-internet": ("socketpair", (2, 1), REFUSE),
    "sendto-its-peer": ("sendto", (3, 1, 1, 0, 0), ALLOW),
    "sendto-a-name": ("sendto", (3, 1, 1, 0, 0x7FFF_0000_0000), REFUSE),
    "setsockopt-time": ("setsockopt", (3, 1, 20), ALLOW),
    "setsockopt-buffer": ("setsockopt", (3, 1, 7), REFUSE),
    "mmap-private": ("mmap", (0, 4096, 3, 0x22), ALLOW),
    "mmap-file-shared": ("mmap", (0, 4096, 3, 0x1), ALLOW),
    "mmap-shared-anonymous": ("mmap", (0, 4096, 3, 0x21), REFUSE),
    "mmap-shared-validate": ("mmap", (0, 4096, 3, 0x23), REFUSE),
    "mmap-growing": ("mmap", (0, 4096, 3, 0x122), REFUSE),
    "mmap-huge": ("mmap", (0, 4096, 3, 0x40022), REFUSE),
    "mprotect": ("mprotect", (0, 4096, 7), ALLOW),
    "mprotect-growing": ("mprotect", (0, 4096, 0x1000003), REFUSE),
    "fallocate": ("fallocate", (3, 0, 0, 4096), ALLOW),
    "fallocate-unseen": ("fallocate", (3, 1, 0, 4096), REFUSE),
    "setsockopt-bpf": ("setsockopt", (3, 1, 50), REFUSE),
    "affinity-of-itself": ("sched_getaffinity", (0,), ALLOW),
    "affinity-of-another": ("sched_getaffinity", (1,), REFUSE),
    "group-of-another": ("getpgid", (1,), REFUSE),
    "session-of-another": ("getsid", (1,), REFUSE),
    "chmod": ("fchmodat", (), NOTHING),
    "utime": ("utimensat", (), NOTHING),
    "xattr": ("setxattr", (), UNSUPPORTED),
    "seccomp-strict": ("seccomp", (0, 0), REFUSE),
    "seccomp-listener": ("seccomp", (1, 8), REFUSE),
}


@on_each
@pytest.mark.parametrize("use", USES)
def test_policies_answer_each_use(use: str, architecture: Architecture) -> None:
    call, arguments, expected = USES[use]
    for name, policy in POLICIES.items():
        assert answer(policy, architecture, call, *arguments) == expected, name


@on_each
def test_policies_allow_signals_to_itself_alone_under_an_old_landlock(
    architecture: Architecture,
) -> None:
    for policy in (POLICIES["template-3"], POLICIES["program-3"], CALL):
        for call in ("kill", "tgkill", "tkill"):
            arguments = (PID, 15, 15) if call != "tgkill" else (PID, PID, 15)
            assert answer(policy, architecture, call, *arguments) == ALLOW
            for other in (1, 0, HIGH - 1, PID + 1):
                assert answer(policy, architecture, call, other, *arguments[1:]) == REFUSE
    assert answer(POLICIES["program-6"], architecture, "kill", 1, 15) == ALLOW


@on_each
def test_policies_refuse_truncation_under_an_old_landlock(
    architecture: Architecture,
) -> None:
    truncating = 0o1000
    for ways, expected in ((0, REFUSE), (1, ALLOW), (2, ALLOW), (3, REFUSE)):
        for call, place in (("open", 1), ("openat", 2)):
            arguments = (*(0,) * place, truncating | ways | 0o2000000)
            assert answer(POLICIES["program-1"], architecture, call, *arguments) in (expected, None)
            assert answer(POLICIES["program-3"], architecture, call, *arguments) in (ALLOW, None)
    assert answer(POLICIES["program-1"], architecture, "truncate") == REFUSE
    assert answer(POLICIES["program-3"], architecture, "truncate") == ALLOW


@on_each
def test_template_alone_allows_what_begins_a_call(architecture: Architecture) -> None:
    beginning = (
        ("recvmsg", 3),
        ("sendmsg", 3),
        ("seccomp", 1, 0),
        ("prlimit64", 0, 2, HIGH),
        ("prctl", 1, 9),
    )
    for call, *arguments in beginning:
        assert answer(POLICIES["template-7"], architecture, call, *arguments) == ALLOW
        assert answer(POLICIES["program-7"], architecture, call, *arguments) == REFUSE
        assert answer(CALL, architecture, call, *arguments) == REFUSE
    assert answer(POLICIES["template-7"], architecture, "prctl", 1, HIGH | 9) == REFUSE


@on_each
def test_function_call_allows_threads_and_no_processes(architecture: Architecture) -> None:
    policy = CALL
    assert answer(policy, architecture, "clone", 0x003D_0F00) == ALLOW
    for flags in (17, 0x0120_0011, 0x4111, 0):
        assert answer(policy, architecture, "clone", flags) == REFUSE
    assert answer(policy, architecture, "fork") in (REFUSE, None)
    assert answer(policy, architecture, "vfork") in (REFUSE, None)
    assert answer(policy, architecture, "read") == ALLOW
    assert answer(policy, architecture, "prlimit64", 0, 7, 0, 1) == ALLOW


def test_numbers_contain_only_names_of_policies() -> None:
    policies = [*POLICIES.values(), CALL]
    assert set(NUMBERS) == {n for p in policies for rule in p.rules for n in rule.names.split()}


def test_assemble_supports_far_jumps() -> None:
    architecture = ARCHITECTURES["x86_64"]
    names = sorted(name for name, (number, _) in NUMBERS.items() if number is not None)[::2]
    wanted = {name: arg(0).among(*range(at, at + 60)) for at, name in enumerate(names)}
    rules = [allow(name, condition) for name, condition in wanted.items()]
    policy = Policy("long", tuple(rules[:60]))
    assert len(assemble(policy, architecture)) > 4 * FARTHEST
    for name, condition in list(wanted.items())[:60]:
        for value in condition.values:
            assert answer(policy, architecture, name, value) == ALLOW
        assert answer(policy, architecture, name, condition.values[-1] + 1) == REFUSE
        assert answer(policy, architecture, name, condition.values[0] + HIGH) == ALLOW


def test_is_long_compares_all_bits() -> None:
    architecture = ARCHITECTURES["x86_64"]
    policy = Policy("pointers", (allow("read", arg(1).is_long(0)),))
    assert answer(policy, architecture, "read", 0, 0) == ALLOW
    assert answer(policy, architecture, "read", 0, HIGH) == REFUSE
    assert answer(policy, architecture, "read", 0, 1) == REFUSE


def test_allow_twice_allows_each_alternative() -> None:
    architecture = ARCHITECTURES["x86_64"]
    rules = (allow("read", arg(0).among(1), arg(1).among(2)), allow("read", arg(0).is_not(1, 3)))
    policy = Policy("ways", rules)
    expected = {(1, 2): ALLOW, (1, 3): REFUSE, (3, 2): REFUSE, (4, 9): ALLOW}
    assert {at: answer(policy, architecture, "read", *at) for at in expected} == expected


def test_for_process_inserts_the_process_id() -> None:
    architecture = ARCHITECTURES["x86_64"]
    policy = Policy("own", (allow("kill", arg(0).among(OWN_PID)),))
    filter = assemble(policy, architecture)
    assert bytes(filter.for_process(7)) != bytes(filter.for_process(8))
    for pid in (7, 8):
        assert decide(filter, 62, pid, audit=architecture.audit, pid=pid)[0] == ALLOW
        assert decide(filter, 62, 15, audit=architecture.audit, pid=pid)[0] == REFUSE


@pytest.mark.parametrize(
    "second",
    [allow("read"), Rule("read", REFUSE), allow("read", arg(0).among(1))],
    ids=["twice", "contrary", "wholly-and-in-part"],
)
def test_assemble_refuses_two_answers_to_a_call(second: Rule) -> None:
    for rules in ((allow("read"), second), (second, allow("read"))):
        with pytest.raises(InvalidArgumentError, match="torn has two answers to read"):
            assemble(Policy("torn", rules), ARCHITECTURES["x86_64"])


def test_assemble_refuses_an_unknown_name() -> None:
    with pytest.raises(KeyError, match="'raed'"):
        assemble(Policy("typo", (allow("raed"),)), ARCHITECTURES["x86_64"])
