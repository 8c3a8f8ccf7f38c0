"""`Protocol`: the rules of a run, which are fixed in a file before it."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from guerdon.arena.training import Loop
from guerdon.errors import InvalidArgumentError

__all__ = ["Hypothesis", "Protocol"]


class Hypothesis(BaseModel):
    """A claim that was registered before the run.

    Attributes:
        method: The method that it is about.
        worlds: The worlds that it is about.
        claim: The claim.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    worlds: list[str] | Literal["all"]
    claim: str


class Protocol(BaseModel):
    """The rules of a run.

    Example:
        >>> from guerdon.arena.protocol import Protocol
        >>> protocol = Protocol.read()
        >>> protocol.evaluation_seeds, protocol.with_seeds(10).sweep_seeds
        (30, 2)

    Attributes:
        loop: The parts of the loop that are the same for all methods.
        updates: The number of updates of a policy.
        learning_rates: The rates of the sweep, in ascending order.
        sweep_seeds: The number of seeds of the sweep.
        evaluation_seeds: The number of seeds of the evaluation.
        target: The share of the optimum that "updates to target" waits for, in (0, 1).
        baseline: The method that others are compared with.
        bootstrap: The number of samples of intervals and tests.
        frozen: The shares of the optimum of the frozen policies.
        batches: The number of batches of each frozen policy.
        hypotheses: What was registered before the run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    loop: Loop = Field(default_factory=Loop)
    updates: int = Field(ge=1, le=100_000)
    learning_rates: list[float] = Field(min_length=1)
    sweep_seeds: int = Field(ge=1)
    evaluation_seeds: int = Field(ge=1)
    target: float = Field(gt=0, lt=1)
    baseline: str
    bootstrap: int = Field(ge=100)
    frozen: list[float]
    batches: int = Field(ge=20)
    hypotheses: list[Hypothesis] = []

    @classmethod
    def read(cls, path: str | Path | None = None) -> Protocol:
        """Read a protocol; by default that of the package.

        Raises:
            InvalidArgumentError: The file can't be read, or is not a protocol.
        """
        try:
            file = files("guerdon.arena") / "protocol.yaml" if path is None else Path(path)
            return cls.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (OSError, yaml.YAMLError, ValidationError) as error:
            raise InvalidArgumentError(f"{path}: not a protocol of the arena: {error}") from error

    def with_changes(self, **changes: Any) -> Protocol:
        """Return the protocol with other values, validated."""
        return Protocol.model_validate({**self.model_dump(), **changes})

    def with_seeds(self, seeds: int) -> Protocol:
        """Return the protocol with fewer or more evaluation seeds, and the rest in proportion."""
        share = seeds / self.evaluation_seeds
        return self.with_changes(
            evaluation_seeds=seeds,
            sweep_seeds=max(round(self.sweep_seeds * share), 2),
            batches=max(round(self.batches * share), 20),
        )

    def fingerprint(self) -> str:
        """Return a digest of all that determines the results of a method in a world."""
        content = self.model_dump(mode="json", exclude={"hypotheses", "bootstrap", "target"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
