"""Importing Ray, and connecting to a cluster."""

from __future__ import annotations

from typing import Any

from guerdon._loading import import_extra

__all__ = ["connect", "free_cpus", "import_ray"]


def import_ray() -> Any:
    """Import Ray.

    Raises:
        MissingExtraError: It isn't installed.
    """
    return import_extra("ray", "ray", "this")


def connect(ray: Any) -> bool:
    """Connect to a cluster: that of ``RAY_ADDRESS``, one that runs here, or a new local one.

    Returns:
        Whether this call connected; False if the program was connected already.
    """
    if ray.is_initialized():
        return False
    ray.init(include_dashboard=False, logging_level="WARNING")
    return True


def free_cpus(ray: Any) -> int:
    """Return how many CPUs of the cluster are free, at least 1."""
    return max(1, int(ray.available_resources().get("CPU", 1)))
