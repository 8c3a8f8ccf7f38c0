"""What a program said last on its standard error."""

import asyncio
import os

from guerdon.services.mcp.stderr_tail import KEPT, StderrTail


def test_the_end_is_kept_and_the_beginning_is_not():
    async def write():
        with StderrTail() as tail:
            for number in range(10_000):
                os.write(tail.file.fileno(), b"line %d\n" % number)
                if number % 1000 == 0:
                    await asyncio.sleep(0)  # the loop reads
            return tail

    text = asyncio.run(write()).text()
    assert text.endswith("line 9999")
    assert len(text) <= KEPT
    assert "line 0\n" not in text


def test_nothing_was_said():
    assert StderrTail().text() == ""


def test_a_program_that_outlives_it_holds_nobody_up():
    async def outlive():
        with StderrTail() as tail:
            theirs = os.dup(tail.file.fileno())
            os.write(theirs, b"still here")
        return tail, theirs

    tail, theirs = asyncio.run(outlive())
    os.close(theirs)
    assert tail.text() == "still here"
