"""What is refused when a rubric is made, rather than later when it is called."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any

from guerdon.errors import RubricDefinitionError

__all__ = ["RubricMeta", "SetByInit", "forgotten"]


def forgotten(kind: type) -> RubricDefinitionError:
    """The error of a class whose ``__init__`` forgot ``super().__init__()``."""
    return RubricDefinitionError(f"{kind.__name__}.__init__ must call super().__init__() first")


class SetByInit:
    """Stands for an attribute until ``__init__`` has set it, and then says what was forgotten.

    It stands for none of those that a hot call reads: a descriptor on the class slows every look
    at the instance.
    """

    def __get__(self, rubric: Any, kind: type) -> Any:
        if rubric is None:
            return self
        raise forgotten(kind)


class RubricMeta(ABCMeta):
    """Refuses a rubric without `forward`, and one that forgot ``super().__init__()``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a rubric, and see that it is one."""
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            raise RubricDefinitionError(
                f"{cls.__name__} can't be made: write {' and '.join(missing)} in a subclass"
            )
        rubric = super().__call__(*args, **kwargs)
        if "_children" not in rubric.__dict__:
            raise forgotten(cls)
        return rubric

    @property
    def __signature__(cls) -> inspect.Signature:
        """How a rubric is made, for `help` and editors: as its ``__init__`` says."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])
