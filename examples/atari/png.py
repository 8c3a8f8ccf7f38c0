"""Writes and reads the simplest kind of PNG: 8-bit RGB, without filters, in one chunk of data."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from guerdon.errors import InvalidArgumentError

__all__ = ["Pixels", "decode", "encode"]

Pixels = npt.NDArray[np.uint8]  # height, width, 3

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB_8_BIT = bytes([8, 2, 0, 0, 0])  # depth, colour type, compression, filter, no interlacing
MOST_PIXELS = 512 * 512


def encode(pixels: Pixels) -> bytes:
    """Return an image as a PNG file.

    Example:
        >>> import numpy as np
        >>> from examples.atari.png import decode, encode
        >>> image = encode(np.full((2, 3, 3), 7, dtype=np.uint8))
        >>> image[1:4], decode(image).shape
        (b'PNG', (2, 3, 3))

    Args:
        pixels: The colours, of shape (height, width, 3).
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + width * 3), dtype=np.uint8)  # each row begins with its filter, 0
    rows[:, 1:] = pixels.reshape(height, width * 3)
    header = struct.pack(">II", width, height) + RGB_8_BIT
    data = zlib.compress(rows.tobytes(), level=6)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def decode(image: bytes) -> Pixels:
    """Return the pixels of an image that `encode` has written.

    Example:
        >>> import numpy as np
        >>> from examples.atari.png import decode, encode
        >>> int(decode(encode(np.full((2, 3, 3), 7, dtype=np.uint8))).sum())
        126

    Args:
        image: A PNG file; of all kinds of PNG, only that of `encode` is read.

    Returns:
        The colours, of shape (height, width, 3).

    Raises:
        InvalidArgumentError: It isn't such a file, or has more than 512 × 512 pixels.
    """
    try:
        width, height, kind = struct.unpack_from(">II5s", image, 16)
        (length,) = struct.unpack_from(">I", image, 33)
        if not image.startswith(SIGNATURE) or kind != RGB_8_BIT or width * height > MOST_PIXELS:
            raise ValueError("not an 8-bit RGB image of at most 512 × 512 pixels")
        size = height * (1 + width * 3)
        # At most `size` bytes are decompressed, whatever the image contains.
        data = zlib.decompressobj().decompress(image[41 : 41 + length], size)
        rows = np.frombuffer(data, dtype=np.uint8).reshape(height, 1 + width * 3)
        if rows[:, 0].any():
            raise ValueError("its rows are filtered")
    except (ValueError, struct.error, zlib.error) as error:
        raise InvalidArgumentError(f"can't read the image: {error}") from None
    return rows[:, 1:].reshape(height, width, 3)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
