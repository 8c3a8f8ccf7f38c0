"""Argument checks that every package shares: numbers, choices, and how errors show values."""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from guerdon.errors import GuerdonError, InvalidArgumentError

if TYPE_CHECKING:
    from pydantic import ValidationError

Value = TypeVar("Value")

_LONGEST = 60
_MOST = 20
# The most errors of pydantic that are listed: unknown fields have one each.
MAX_ERRORS = 100


def as_finite(value: object) -> float | None:
    """Return a real number as a float, or None if it isn't one or isn't finite.

    Numbers of numpy count, a bool does not.

    Example:
        >>> as_finite(1), as_finite(float("nan")), as_finite(True), as_finite("1")
        (1.0, None, None, None)
    """
    if type(value) is float:  # the usual case, without the slower check of an abstract class
        return value if math.isfinite(value) else None
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer that no float can represent
        return None
    return number if math.isfinite(number) else None


def as_score(value: object) -> float | None:
    """Return a score or a reward as a float, or None if it isn't one or isn't finite.

    A bool counts as 0 or 1, that of numpy, too: ``return a == b`` is a score.

    Example:
        >>> as_score(True), as_score(0.5), as_score(None), as_score(10**400)
        (1.0, 0.5, None, None)
    """
    kind = type(value)
    if kind is float:  # the usual case
        return value if math.isfinite(value) else None  # type: ignore[arg-type, return-value]
    if kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return 1.0 if value else 0.0
    return as_finite(value)


def is_finite(value: object) -> bool:
    """Whether a value is a finite real number; a bool is not one.

    Example:
        >>> [is_finite(value) for value in (1, 0.5, True, float("nan"), 10**400, "1")]
        [True, True, False, False, False, False]
    """
    return as_finite(value) is not None


def shown(value: object) -> str:
    """Return the repr of a value for an error message, at most 60 characters long.

    Example:
        >>> shown("high"), shown(10**5000)
        ("'high'", '<int>')
    """
    try:
        text = repr(value)
    except Exception:  # an integer of thousands of digits, deep nesting, an object's own __repr__
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def check_number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    error: type[GuerdonError] = InvalidArgumentError,
) -> float:
    """Return a finite number within bounds as a float.

    Example:
        >>> check_number("gamma", 2.0, low=0, high=1)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: `gamma` must be in [0, 1], got 2.0

    Args:
        name: The argument's name, for the message.
        value: The argument.
        low: The lowest accepted value.
        high: The highest accepted value.
        low_open: Whether `low` itself is rejected.
        error: The exception to raise.

    Raises:
        InvalidArgumentError: The value is not a finite number within the bounds.
    """
    number = as_finite(value)
    if number is not None and low <= number <= high and not (low_open and number == low):
        return number
    raise error(f"`{name}` must be {_bounds(low, high, low_open)}, got {shown(value)}")


def check_integer(
    name: str,
    value: object,
    *,
    low: int | None = None,
    high: int | None = None,
    error: type[GuerdonError] = InvalidArgumentError,
) -> int:
    """Return an integer within bounds.

    Example:
        >>> check_integer("n", 0, low=1)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: `n` must be an integer >= 1, got 0

    Args:
        name: The argument's name, for the message.
        value: The argument; numpy's integers count, a bool does not.
        low: The lowest accepted value.
        high: The highest accepted value.
        error: The exception to raise.

    Raises:
        InvalidArgumentError: The value is not an integer within the bounds.
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if (low is None or number >= low) and (high is None or number <= high):
            return number
    if low is not None and high is not None:
        expected = f"an integer in [{low}, {high}]"
    else:
        expected = "an integer" + (f" >= {low}" if low is not None else "")
        expected += f" <= {high}" if high is not None else ""
    raise error(f"`{name}` must be {expected}, got {shown(value)}")


def check_list(
    name: str, value: object, *, error: type[GuerdonError] = InvalidArgumentError
) -> list[Any]:
    """Return a sequence that isn't text as a list.

    Example:
        >>> check_list("ids", "q7-0")
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: `ids` must be a list, got 'q7-0'

    Args:
        name: The argument's name, for the message.
        value: The argument.
        error: The exception to raise.

    Raises:
        InvalidArgumentError: The value is not a sequence, or is text.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise error(f"`{name}` must be a list, got {shown(value)}")
    return list(value)


def check_seconds(name: str, value: object) -> float:
    """Return a number of seconds above 0 as a float.

    Example:
        >>> check_seconds("timeout_s", 5)
        5.0

    Raises:
        InvalidArgumentError: The value is not a finite number above 0.
    """
    number = as_finite(value)
    if number is None or number <= 0:
        raise InvalidArgumentError(
            f"`{name}` must be a number of seconds above 0, got {shown(value)}"
        )
    return number


def check_range(
    name: str, value: object, *, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float]:
    """Return a pair of finite numbers, the lower first, as floats.

    Example:
        >>> from guerdon._validation import check_range
        >>> check_range("percentiles", [5, 95], low=0, high=100)
        (5.0, 95.0)

    Raises:
        InvalidArgumentError: It is something else, or reaches beyond `low` or `high`.
    """
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_finite, value))
    first, last = map(float, value) if is_pair else (0.0, 0.0)  # type: ignore[call-overload]
    if low <= first < last <= high:
        return first, last
    bounds = f" in [{low:g}, {high:g}]" if math.isfinite(high - low) else ""
    raise InvalidArgumentError(
        f"`{name}` must be two finite, increasing numbers{bounds}, got {shown(value)}"
    )


def check_choice(
    name: str,
    value: object,
    choices: Iterable[str],
    *,
    error: type[GuerdonError] = InvalidArgumentError,
) -> str:
    """Return one of several strings.

    Example:
        >>> check_choice("normalize", "men", ["mean", "std"])
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: `normalize` must be 'mean' or 'std', got 'men'; did you mean 'mean'?

    Raises:
        InvalidArgumentError: The value is not one of the choices.
    """  # noqa: E501  the error message is one line
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    near = get_close_matches(value, known, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise error(f"`{name}` must be {_listed(known)}, got {shown(value)}{hint}")


def check_type(name: str, value: object, kind: type[Value]) -> Value:
    """Return a value of a type.

    Example:
        >>> check_type("normalize", "yes", bool)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: `normalize` must be of type bool, got 'yes'

    Raises:
        InvalidArgumentError: The value is not of the type.
    """
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"`{name}` must be of type {kind.__name__}, got {shown(value)}")
    return value


def check_token(token: str | None) -> str | None:
    """Return a bearer token that can be sent in a header, or None; see RFC 6750, section 2.1.

    Example:
        >>> check_token("s3cret")
        's3cret'

    Raises:
        InvalidArgumentError: The token is empty, or contains a space, a line break or a character
            outside ASCII. The message doesn't include it.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not token or not all("!" <= each <= "~" for each in token):
        raise InvalidArgumentError(
            "`token` must be printable ASCII without spaces or line breaks; files often end with a "
            "line break"
        )
    return token


def has_token(authorization: str, token: str) -> bool:
    """Return whether the value of an ``Authorization`` header contains a bearer token.

    Example:
        >>> has_token("Bearer s3cret", "s3cret"), has_token("Basic s3cret", "s3cret")
        (True, False)
    """
    kind, _, given = authorization.partition(" ")
    is_token = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
    return kind.lower() == "bearer" and is_token


def field_errors(error: ValidationError) -> list[dict[str, Any]]:
    """Return what pydantic found wrong as JSON-compatible dicts: ``type``, ``loc`` and ``msg``.

    Of more than 100 errors, the only dict has their number.
    """
    count = error.error_count()
    if count > MAX_ERRORS:
        text = f"{count:,} errors; they are listed if there are at most {MAX_ERRORS}"
        return [{"type": "too_many_errors", "loc": [], "msg": text}]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [dict(each) for each in found]


def summarize(error: ValidationError) -> str:
    """Return what pydantic found wrong in one line, at most three fields of it."""
    errors = field_errors(error)
    parts = []
    for each in errors[:3]:
        where = ".".join(map(str, each["loc"]))
        parts.append(f"{where}: {each['msg']}" if where else each["msg"])
    if len(errors) > 3:
        parts.append(f"and {len(errors) - 3} more")
    return "; ".join(parts)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known one, or all of them.

    Example:
        >>> did_you_mean("scor", ["score", "diff"])
        "did you mean 'score'?"
        >>> did_you_mean("x", ["score", "diff"])
        "known: 'diff', 'score'"
    """
    names, text = sorted(known), str(name)[:200]
    near = get_close_matches(text, names, n=1)
    if not near and len(text) > 2:  # another case, or the beginning of a longer name
        near = [each for each in names if each.casefold().startswith(text.casefold())]
    if near:
        return f"did you mean {near[0]!r}?"
    listed = ", ".join(map(repr, names[:_MOST])) + (", …" if len(names) > _MOST else "")
    return f"known: {listed}" if names else "none are known"


def _listed(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _bounds(low: float, high: float, low_open: bool) -> str:
    if math.isinf(low) and math.isinf(high):
        return "a finite number"
    if math.isinf(high):
        return f"a finite number {'>' if low_open else '>='} {low:g}"
    if math.isinf(low):
        return f"a finite number <= {high:g}"
    return f"in {'(' if low_open else '['}{low:g}, {high:g}]"
