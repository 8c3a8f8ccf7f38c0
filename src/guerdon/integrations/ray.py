"""`score_dataset`: the columns of result rows for a Ray Dataset of rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from guerdon._ray import connect, import_ray
from guerdon.config.pipeline import RewardPipeline
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.crediting import CreditSettings
from guerdon.rollouts.scoring.job import ScoringJob, ScoringPipeline
from guerdon.rollouts.scoring.parquet import rows_of_table, table_of_rows
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.services.config import share_limits

if TYPE_CHECKING:
    import ray.data

__all__ = ["score_dataset"]

# Rollouts that are scored by one call.
ROWS = 256


def score_dataset(
    ds: ray.data.Dataset,
    reward: str | Rubric | RewardFunction | RewardPipeline,
    *,
    parameters: Mapping[str, Any] | None = None,
    credit: CreditSettings | None = None,
    score_failed: bool = False,
    services: str | None = None,
    at: int | None = None,
    workers: int | None = None,
    batch_size: int = ROWS,
    **options: Any,
) -> ray.data.Dataset:
    """Add the columns of result rows to a dataset of rollouts, lazily, as Ray Data does.

    The columns are those of a Parquet file that ``guerdon score`` writes, without ``id`` and
    ``group``; they replace columns of the same names. A rollout that fails has a null `score` and
    the reason in `error`. Rows keep their other columns, but not their order, unless
    ``DataContext.execution_options.preserve_order`` is set.

    Example::

        ds = ray.data.read_json("rollouts/", lines=True)
        scored = score_dataset(ds, "reward.py:reward", credit=CreditSettings("gigpo"))
        scored.write_parquet("scored/")

    Args:
        ds: Rollouts with the columns ``messages``, and optionally ``id``, ``group``,
            ``ground_truth`` and any others. A null is a column that the row doesn't have.
        reward: The reward, or its name: ``reward.yaml``, ``module:name`` or ``file.py:name``, which
            every node must have.
        parameters: Keyword arguments for a reward function.
        credit: How credit is assigned; None assigns none. With credit, and with a batch function,
            the dataset is grouped by ``group``; Ray Data's shuffle requires CPUs besides those
            that score.
        score_failed: Whether to score episodes that ended with an error.
        services: A file of services by name.
        at: The position of the schedules of a reward file.
        workers: The most actors that score, which share the limits of services; by default one
            for each CPU of the cluster.
        batch_size: The most rollouts that are scored by one call of an actor, unless they are
            grouped.
        **options: Further options of the actors, such as ``num_cpus`` and ``num_gpus``.

    Raises:
        MissingExtraError: Ray isn't installed.
        LoadError: The reward can't be loaded.
        InvalidArgumentError: An option is invalid, or the dataset has no column ``group``.
    """
    ray = import_ray()
    from ray import cloudpickle

    connect(ray)
    job = ScoringJob(
        "", reward if isinstance(reward, str) else "", parameters=dict(parameters or {}),
        credit=credit, score_failed=score_failed, services=services, at=at,
    )  # fmt: skip
    given = None if isinstance(reward, str) else reward
    # A copy, as each actor has one: what it opens is closed.
    with ScoringPipeline(job, cloudpickle.loads(cloudpickle.dumps(given))) as pipeline:
        together, fingerprint = pipeline.takes_groups, pipeline.scorer.fingerprint
    workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    program = cloudpickle.dumps((job, given, fingerprint))
    options = {
        "fn_constructor_args": (program, workers),
        "concurrency": (1, workers),
        "batch_format": "pyarrow",
        **options,
    }
    if not together:
        return ds.map_batches(_Scorer, batch_size=batch_size, **options)
    if "group" not in (ds.columns() or ()):
        raise InvalidArgumentError(
            "the rollouts of a group are scored together, but the dataset has no column 'group'"
        )
    return ds.groupby("group").map_groups(_Scorer, **options)


class _Scorer:
    """Scores tables of rollouts in an actor."""

    def __init__(self, program: bytes, workers: int) -> None:
        from ray import cloudpickle

        share_limits(workers)  # before the services are loaded
        job, reward, fingerprint = cloudpickle.loads(program)
        self._pipeline = ScoringPipeline(job, reward)
        # A class that was sent by value has no source here.
        self._pipeline.scorer.fingerprint = fingerprint

    def __call__(self, table: Any) -> Any:
        rows = rows_of_table(table)
        are_alone = self._pipeline.takes_groups and rows and rows[0].get("group") is None
        batches = [[row] for row in rows] if are_alone else [rows]
        scored = [row for batch in batches for row in self._pipeline.score_rows(batch)]
        results = table_of_rows(scored).drop_columns(["id", "group"])
        kept = [name for name in table.column_names if name not in results.column_names]
        table = table.select(kept)
        for name in results.column_names:
            table = table.append_column(name, results[name])
        return table
