"""Whether a level works on this machine, found out by attacking a locked process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from guerdon.errors import InvalidArgumentError, SandboxError, SandboxUnavailableError
from guerdon.sandbox.finding import Finding

__all__ = ["Probe", "probe"]


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found out about a level here.

    Example:
        >>> from guerdon.sandbox import probe
        >>> probe("process").missing
        ()

    Attributes:
        level: Its name.
        works: Whether it does all that it promises.
        missing: What is missing where it doesn't, a line each, with what mends it.
        findings: What attacks on it came to, where they could be tried.
        facts: What it is made of here.
    """

    level: str
    works: bool
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def probe(level: str = "strict") -> Probe:
    """Find out whether a level works here, as this user.

    A process is locked as a program is, and tries to get out: the attacks do no harm where they
    succeed.

    Example:
        >>> from guerdon.sandbox import probe
        >>> found = probe("process")
        >>> found.works, found.findings
        (True, ())

    Args:
        level: ``strict`` or ``process``.

    Raises:
        InvalidArgumentError: It is another one.
    """
    from guerdon.sandbox.local.levels import local_level

    if level not in ("strict", "process"):
        raise InvalidArgumentError(f"level is {level!r:.60}; it takes strict or process")
    try:
        local = local_level(level)
        assert local is not None
        from guerdon.sandbox.limits import Limits
        from guerdon.sandbox.local.programs import LocalSandbox

        with LocalSandbox(local, workers=1, limits=Limits()) as sandbox:
            works = sandbox.run("print(6 * 7)").stdout == "42\n"
            facts = dict(sandbox.facts)
            findings = sandbox.findings
    except SandboxUnavailableError as error:
        attacked = {f"{each.name}: {each.said}" for each in error.findings}
        missing = tuple(each for each in error.missing if each not in attacked)
        return Probe(level, False, missing, error.findings, _facts(level))
    except SandboxError as error:
        return Probe(level, False, (str(error),), facts=_facts(level))
    return Probe(level, works, () if works else ("a program did not run",), findings, facts)


def _facts(level: str) -> dict[str, str]:
    """What can be told of the machine where the level doesn't work."""
    from guerdon.sandbox.locking.lock import facts

    return facts() if level == "strict" else {}
