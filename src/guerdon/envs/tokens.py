"""Checking a bearer token: what can't be sent in a header would never match."""

from __future__ import annotations

from guerdon.errors import InvalidArgumentError

__all__ = ["check_token"]


def check_token(token: str | None) -> str | None:
    """Check a token, where there is one; what it may hold is in RFC 6750, section 2.1.

    Example:
        >>> check_token("s3cret")
        's3cret'

    Raises:
        InvalidArgumentError: It is empty, or holds a space, a line's end or what isn't ASCII.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not token or not all("!" <= each <= "~" for each in token):
        raise InvalidArgumentError(
            "the token takes printable ASCII without spaces; a line's end at its end, as files "
            "have it, counts too"
        )
    return token
