"""`Owners`: which environment each trajectory rubric records for."""

from __future__ import annotations

import threading
from typing import Any
from weakref import ref

from guerdon.envs.environment import Environment
from guerdon.errors import EnvDefinitionError
from guerdon.rubrics.rubric import Rubric

__all__ = ["Owners", "trajectory_owners"]


class Owners:
    """Which environment each trajectory rubric records for: two would mix their episodes."""

    def __init__(self) -> None:
        # By what `id` says of a rubric: an author's rubrics may be equal, or have no hash.
        self._owners: dict[int, tuple[ref[Rubric], ref[Environment[Any, Any, Any]]]] = {}
        self._lock = threading.Lock()

    def take(self, environment: Environment[Any, Any, Any]) -> list[int]:
        """Have an environment own the trajectory rubrics of its tree.

        Returns:
            What to free them by.

        Raises:
            EnvDefinitionError: One of them is another environment's, which is still open.
        """
        mine = _trajectory_rubrics(environment)
        with self._lock:
            for path, rubric in mine:
                owner = self._owner(rubric)
                if owner is not None and owner is not environment:
                    what = f"the trajectory rubric {path!r}" if path else "the trajectory rubric"
                    raise EnvDefinitionError(
                        f"{what} of {type(environment).__name__} records for another environment "
                        "already, and would mix their episodes; make one for each, in __init__ "
                        "or in the factory"
                    )
            for _, rubric in mine:
                self._owners[id(rubric)] = self._forgotten(rubric), ref(environment)
        return [id(rubric) for _, rubric in mine]

    def free(self, environment: Environment[Any, Any, Any], owned: list[int]) -> None:
        """Let an environment that is closed own nothing."""
        with self._lock:
            for key in owned:
                found = self._owners.get(key)
                if found is not None and found[1]() is environment:
                    del self._owners[key]

    def _owner(self, rubric: Rubric) -> Environment[Any, Any, Any] | None:
        found = self._owners.get(id(rubric))
        return found[1]() if found is not None and found[0]() is rubric else None

    def _forgotten(self, rubric: Rubric) -> ref[Rubric]:
        """A reference to a rubric, with which it is forgotten when it is gone."""
        key = id(rubric)

        def gone(reference: ref[Rubric]) -> None:
            found = self._owners.get(key)
            if found is not None and found[0] is reference:
                self._owners.pop(key, None)

        return ref(rubric, gone)


# Of this process: environments of several servers and pools may share a rubric by mistake, too.
trajectory_owners = Owners()


def _trajectory_rubrics(environment: Environment[Any, Any, Any]) -> list[tuple[str, Rubric]]:
    rubric = environment.rubric
    if not isinstance(rubric, Rubric) or not rubric._look().holds_trajectory:
        return []
    nodes = [("", rubric), *rubric.named_rubrics()]
    return [(path, each) for path, each in nodes if each._is_trajectory]
