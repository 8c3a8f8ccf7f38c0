"""How many files and sockets a process may have open."""

from __future__ import annotations


def raise_file_limit() -> int:
    """Let this process have as many as the system allows it.

    Returns:
        How many that is.
    """
    import resource  # which Windows hasn't

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
