"""What a sandbox is told of a reward function, and what it tells of it once it has loaded it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from guerdon.rubrics.functions.function import Mode, Parameters

__all__ = ["Described", "Handover", "Place"]


class Place(BaseModel):
    """Where a top-level module lies that no folder of ``sys.path`` would give.

    Attributes:
        name: The module's.
        file: Its file, or its ``__init__.py``; None of a namespace package.
        folders: Where its submodules are; none of a single file.
        text: The text of a single file.
        digest: That of the file's bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    file: str | None = None
    folders: tuple[str, ...] = ()
    text: str | None = None
    digest: str | None = None


class Handover(BaseModel):
    """What a sandbox needs to load a reward function.

    Attributes:
        version: That of the format.
        spec: What the person wrote; its last part is the name.
        text: The file's text; None where it is imported.
        file: What the file of the text is called, or the file to import.
        digest: That of the file's bytes.
        place: Where the module of the spec lies, where it wouldn't be found.
        folder: Put on ``sys.path``: that of the file, where it may be read.
        mode: What the mode is said to be.
        requirements: To be checked inside, where that isn't this machine's Python.
        keep_loop: Whether an async function has one event loop for all calls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal["guerdon-call/1"]
    spec: str
    text: str | None = None
    file: str | None = None
    digest: str | None = None
    place: Place | None = None
    folder: str | None = None
    mode: Mode | None = None
    requirements: tuple[str, ...] = ()
    keep_loop: bool = False


class Described(BaseModel):
    """What a sandbox tells of the function that it has loaded; it may be lying.

    Attributes:
        version: That of the format.
        refused: Why it can't be loaded; None where it is.
        traceback: That of the person's own code.
        missing: The module that was not found, where that is why.
        name: What the function is called.
        mode: Its mode.
        is_rubric: Whether it is made of a rubric.
        messages: The parameter that takes the conversations; see `Parameters`.
        ground_truth: The one that takes the ground truth.
        named: The names of all others.
        takes_all: Whether it has ``**kwargs``.
        fingerprint: Of the function, or of the rubric: 16 hexadecimal digits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal["guerdon-call/1"]
    refused: str | None = None
    traceback: str | None = None
    missing: str | None = None
    name: str = Field(default="", max_length=1000)
    mode: Mode = "pointwise"
    is_rubric: bool = False
    messages: str | None = None
    ground_truth: str | None = None
    named: list[str] = Field(default_factory=list)
    takes_all: bool = False
    fingerprint: str = Field(default="", pattern="^([0-9a-f]{16})?$")

    @property
    def parameters(self) -> Parameters:
        """What the function takes."""
        return Parameters(
            self.mode, self.messages, self.ground_truth, frozenset(self.named), self.takes_all
        )
