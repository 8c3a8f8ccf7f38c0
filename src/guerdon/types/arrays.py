"""`ArrayField`: arrays of numpy as fields of actions, observations and states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import SerializationInfo, WrapSerializer
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ArrayField"]

# The kinds of numbers that an array on the wire may have: bool, integers, floats.
KINDS = "biuf"


@dataclass(frozen=True, slots=True)
class ArrayField:
    """Declares a field that is an array of numpy.

    The field accepts an array or nested lists, whose numbers must be representable in `dtype`. In
    JSON it is nested lists; a batch connection with MessagePack carries the bytes of the array.

    Example:
        >>> from typing import Annotated
        >>> import numpy as np
        >>> from guerdon import Observation
        >>> from guerdon.types import ArrayField
        >>> class Screen(Observation):
        ...     frame: Annotated[np.ndarray, ArrayField("uint8", (2, None))]
        >>> screen = Screen(frame=[[0, 255, 0], [1, 2, 3]])
        >>> screen.frame.dtype, screen.frame.shape
        (dtype('uint8'), (2, 3))
        >>> screen.model_dump_json(include={"frame"})
        '{"frame":[[0,255,0],[1,2,3]]}'

    Args:
        dtype: The name of the array's type, such as ``"float32"``; None for any bool, integer or
            float type.
        shape: The size of each dimension, None for any size; None for any shape.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return how pydantic validates and serializes the field."""
        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                _serialized, info_arg=True, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Return the JSON Schema of the field: nested lists of numbers."""
        kind = "number" if self.dtype is None else _SCHEMA_TYPES[_dtype(self.dtype).kind]
        out: dict[str, Any] = {"type": kind}
        for size in reversed(self.shape or ()):
            sizes = {} if size is None else {"minItems": size, "maxItems": size}
            out = {"type": "array", "items": out, **sizes}
        return out if self.shape is not None else {"type": "array", "items": {}}

    def validate(self, value: Any) -> np.ndarray[Any, Any]:
        """Return an array or nested lists as an array of this type and shape.

        Raises:
            ValueError: It is not such an array.
        """
        import numpy as np

        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"not an array: {error}") from None
        if array.dtype.kind not in KINDS:
            raise ValueError(f"an array of numbers is required, got one of {array.dtype}")
        if self.dtype is not None and array.dtype != _dtype(self.dtype):
            array = _cast(array, _dtype(self.dtype))
        shape = self.shape
        if shape is not None and array.shape != shape:
            pairs = zip(array.shape, shape, strict=False)
            if array.ndim != len(shape) or any(want not in (None, got) for got, want in pairs):
                raise ValueError(f"the shape must be {shape}, got {array.shape}")
        return array


_SCHEMA_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}


@cache
def _dtype(name: str) -> Any:
    import numpy as np

    return np.dtype(name)


def _cast(array: Any, dtype: Any) -> Any:
    import numpy as np

    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    # A float may be rounded, but not to infinity; any other number has to be the same.
    same = np.isfinite if dtype.kind == "f" else np.asarray
    if not np.array_equal(same(cast), same(array)):
        raise ValueError(f"a number in the array can't be represented in {dtype}")
    return cast


def _serialized(array: Any, info: SerializationInfo) -> Any:
    keep = getattr(info.context, "keep_array", None)
    return array.tolist() if keep is None else keep(array)


def _serialized_if_array(value: Any, handler: Any, info: SerializationInfo) -> Any:
    return _serialized(value, info) if hasattr(value, "dtype") else handler(value)


# Any value; one that is an array is nested lists in JSON.
MaybeArray: TypeAlias = Annotated[Any, WrapSerializer(_serialized_if_array, when_used="json")]
