"""Reading answers of bounded size, with the clients of httpx and of httpx2, its successor."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["ACCEPTED", "MAX_ANSWER", "read_answer"]

# The most bytes of an answer, after decompression.
MAX_ANSWER = 16 * 2**20
# The compression that clients ask for. These two decompress a part of an answer, of 64 KiB, to
# 64 MiB at most; others to any size, before it can be counted.
ENCODINGS = ("", "identity", "gzip", "deflate")
ACCEPTED = {"accept-encoding": "gzip, deflate"}


async def read_answer(response: Any, *, max_bytes: int = MAX_ANSWER) -> Any:
    """Read the answer to a request that was sent with ``stream=True``, and close it.

    Example:
        >>> import asyncio
        >>> import httpx
        >>> async def main():
        ...     return (await read_answer(httpx.Response(200, content=b"Hi"))).text
        >>> asyncio.run(main())
        'Hi'

    Args:
        response: A response of httpx or httpx2.
        max_bytes: The most bytes, after decompression.

    Returns:
        A response of the same class with the content.

    Raises:
        DecodingError: Of the response's library: it is larger, or not compressed as it was asked
            for.
    """
    library = import_module(type(response).__module__.partition(".")[0])
    encoding = response.headers.get("content-encoding", "").lower()
    content, problem = bytearray(), None
    try:
        if encoding not in ENCODINGS:
            problem = f"answered with the content-encoding {encoding!r:.60}"
        else:
            async for part in response.aiter_bytes():
                content += part
                if len(content) > max_bytes:
                    problem = f"answered with more than {max_bytes} bytes"
                    break
    except library.DecodingError as error:
        problem = f"answered with invalid {encoding}: {error}"
    finally:
        await response.aclose()
    if problem is not None:
        raise library.DecodingError(problem, request=response.request)
    kept = response.headers.copy()
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        kept.pop(name, None)
    return type(response)(
        response.status_code,
        headers=kept,
        content=bytes(content),
        request=response.request,
        extensions=response.extensions,
    )
