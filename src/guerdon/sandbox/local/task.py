"""`Task`: one call that a worker is asked for, from the host's side."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from guerdon.sandbox.limits import Limits
from guerdon.sandbox.local.captures import Capture

__all__ = ["Task"]


@dataclass(slots=True)
class Task:
    """One call that a worker is asked for, and what came of it.

    Attributes:
        limits: What it may use.
        before: Descriptors that it has before its outputs.
        after: Descriptors that it has after them.
        answer_bytes: How much it may answer; None where it doesn't.
        link: Its end of a stream to another call, which is only its own once it is handed over.
        job: What it is to answer, where that goes by a stream.
        piped: Whether it has outputs of its own.
        out: What it prints.
        err: What it prints as errors.
        answer: What it answers.
        cause: What ended it, as far as that was seen here; None where nothing did.
    """

    limits: Limits
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    answer_bytes: int | None = None
    link: socket.socket | None = None
    job: bytes = b""
    piped: bool = True
    out: Capture = field(init=False)
    err: Capture = field(init=False)
    answer: Capture | None = None
    cause: str | None = None

    def __post_init__(self) -> None:
        self.out, self.err = Capture(piped=self.piped), Capture(piped=self.piped)
        if self.answer_bytes is not None:
            self.answer = Capture(piped=self.piped)

    @property
    def captures(self) -> list[Capture]:
        """Its outputs."""
        return [self.out, self.err] if self.answer is None else [self.out, self.err, self.answer]

    @property
    def descriptors(self) -> list[int]:
        """All that it has, in order."""
        outputs = [each.writing for each in self.captures if each.writing is not None]
        link = [] if self.link is None else [self.link.fileno()]
        return [*self.before, *outputs, *link, *self.after]

    def handed_over(self) -> None:
        """Close what only the call is to have now."""
        for each in self.captures:
            each.given()
        if self.link is not None:
            self.link.close()

    def read(self) -> str | None:
        """Read what has come; say what is too much."""
        if self.answer is not None and self.answer_bytes is not None:
            self.answer.read(self.answer_bytes)
            if len(self.answer.content) > self.answer_bytes:
                return "answer"
        return self.read_printed()

    def read_printed(self) -> str | None:
        """Read what was printed; say whether that is too much."""
        most = self.limits.output_bytes
        self.out.read(most - min(most, len(self.err.content)))
        self.err.read(most - min(most, len(self.out.content)))
        if len(self.out.content) + len(self.err.content) > most:
            return "output"
        return None

    def close(self) -> None:
        """Close what is still open of its outputs."""
        for each in self.captures:
            each.close()
