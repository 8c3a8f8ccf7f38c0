"""Secrets: they stand in environment variables, are read when needed, and never told."""

from __future__ import annotations

import os

from guerdon.errors import ServiceError

__all__ = ["fits_a_header", "secret_of"]


def secret_of(variable: str, who: str, *, service: str = "", in_header: bool = True) -> str:
    """The secret that an environment variable holds.

    Example:
        >>> import os
        >>> os.environ["THE_KEY"] = "sk-1"
        >>> secret_of("THE_KEY", "the model")
        'sk-1'

    Args:
        variable: The variable's name.
        who: Who needs it, for messages.
        service: The service's name, for errors.
        in_header: Whether it is sent in a header, which can't carry everything.

    Raises:
        ServiceError: It isn't set, or can't be sent.
    """
    value = os.environ.get(variable)
    if not value:
        raise ServiceError(
            f"{who} needs the environment variable {variable}, which isn't set", service=service
        )
    # The HTTP client would refuse it, too, and repeat it in its error.
    if in_header and not fits_a_header(value):
        raise ServiceError(
            f"{who} can't send what the environment variable {variable} holds; it takes printable "
            "ASCII with no space or line break at an end",
            service=service,
        )
    return value


def fits_a_header(value: str) -> bool:
    r"""Whether a value can stand in a header of HTTP.

    Example:
        >>> fits_a_header("Basic YQ=="), fits_a_header("sk-1\n")
        (True, False)
    """
    return value == value.strip() and value.isascii() and value.isprintable()
