"""The names that stand before each program."""

import re

from guerdon.sandbox.conformance import CASES
from guerdon.sandbox.conformance.preamble import NUMBERS, PREAMBLE
from guerdon.sandbox.locking.syscall_numbers import NUMBERS as LOCKED


def test_numbers_are_those_that_the_lock_knows():
    both = NUMBERS.keys() & LOCKED.keys()
    assert len(both) >= 5
    assert {name: NUMBERS[name] for name in both} == {name: LOCKED[name] for name in both}


def test_every_call_that_a_program_makes_has_a_number_and_each_number_is_used():
    source = "".join(case.program + case.companion for case in CASES)
    called = set(re.findall(r'call\(\s*["\'](\w+)["\']', source))
    # Names that are put together from parts.
    called = (called - {"process_vm_"}) | {"process_vm_readv", "process_vm_writev"}
    assert called <= NUMBERS.keys()
    assert NUMBERS.keys() - called <= {"getpid"}  # what tells whether there is an x32


def test_the_preamble_is_python_and_reads_what_it_is_told():
    compile(PREAMBLE, "preamble", "exec")
    assert "json.loads(sys.stdin.read()" in PREAMBLE
