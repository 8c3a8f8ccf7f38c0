"""The limit on open files and sockets of a process."""

from __future__ import annotations


def raise_file_limit() -> int:
    """Raise this process's limit to the highest allowed value.

    Returns:
        The new limit.
    """
    import resource  # missing on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
