"""Rollouts and result rows in Parquet and Arrow: every value has one column of a fixed type."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from guerdon._loading import import_extra
from guerdon.errors import RolloutError
from guerdon.rollouts.json_forms import as_text
from guerdon.rollouts.scoring.result_rows import ResultRow, encode_row

SUFFIX = ".parquet"

# Rows that are converted at once.
ROWS = 4096

# The columns of result rows. An id or a group that isn't text, and the metrics and steps, whose
# content differs from reward to reward, are JSON.
COLUMNS = {
    "id": "string", "group": "string", "score": "double", "is_score_valid": "bool",
    "components": "map", "step_rewards": "numbers", "error": "string", "fingerprint": "string",
    "reason": "string", "notes": "strings", "metrics": "string", "steps": "string",
    "step_components": "string", "stopped_by": "strings", "trees": "string", "log": "string",
    "sandbox": "string",
}  # fmt: skip
AS_JSON = ("metrics", "steps", "step_components", "trees")


def import_arrow() -> Any:
    """Import pyarrow, with its module for Parquet.

    Raises:
        MissingExtraError: It isn't installed.
    """
    return import_extra("pyarrow.parquet", "parquet", "Parquet")


def read_parquet(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a Parquet file as lines of rollouts; a null is a missing key.

    Args:
        file: The open file.

    Raises:
        MissingExtraError: pyarrow isn't installed.
        RolloutError: The file isn't a Parquet file, or is a stream.
    """
    arrow = import_arrow()
    number = 0
    try:
        for batch in arrow.parquet.ParquetFile(file).iter_batches(ROWS):
            for row in rows_of_table(batch):
                number += 1
                yield number, _line(row)
    except (arrow.ArrowException, OSError) as error:
        raise RolloutError(f"this is not a Parquet file that can be read: {error}") from error


def _line(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, allow_nan=False).encode()
    except (TypeError, ValueError):  # a date, an infinite number
        return json.dumps(as_text(row)).encode()


def rows_of_table(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table or batch as dictionaries, without the keys that are null.

    All rows of a table have the same columns, and all messages the same fields: a null is one that
    the row doesn't have.
    """
    rows = table.to_pylist(maps_as_pydicts="lossy")
    return cast("list[dict[str, Any]]", _without_nulls(rows))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(each) if isinstance(each, dict | list) else each
            for name, each in value.items()
            if each is not None
        }
    return [_without_nulls(each) if isinstance(each, dict | list) else each for each in value]


def table_of_rows(rows: Sequence[ResultRow]) -> Any:
    """The Arrow table of result rows; all of them have the same columns."""
    arrow = import_arrow()
    types = {
        "string": arrow.string(), "double": arrow.float64(), "bool": arrow.bool_(),
        "map": arrow.map_(arrow.string(), arrow.float64()),
        "numbers": arrow.list_(arrow.float64()), "strings": arrow.list_(arrow.string()),
    }  # fmt: skip
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    columns = {name: [_value(name, row.get(name)) for row in rows] for name in COLUMNS}
    try:
        return arrow.table(columns, schema)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 doesn't have
        text = json.dumps(columns, ensure_ascii=False).encode("utf-8", "replace")
        return arrow.table(json.loads(text), schema)


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in AS_JSON or (COLUMNS[name] == "string" and not isinstance(value, str)):
        return json.dumps(value)
    return list(value.items()) if COLUMNS[name] == "map" else value


# Files of result rows ----------------------------------------------------------------------------


def partial_file(path: str) -> str:
    """The JSONL file for the rows of a Parquet file that isn't finished."""
    import_arrow()  # raises before anything is scored
    return f"{path}.partial"


def restore(partial: str, path: str) -> None:
    """Write the rows of a finished Parquet file into its JSONL file, unless that has rows."""
    if not os.path.getsize(partial) and os.path.exists(path):
        with open(path, "rb") as file, open(partial, "wb") as lines:
            for _, line in read_parquet(file):
                lines.write(_encoded(json.loads(line)))


def _encoded(stored: dict[str, Any]) -> bytes:
    """The line of a row as it was read from Parquet."""
    row = {name: stored.get(name) for name in ResultRow.__required_keys__}
    row |= {name: json.loads(each) if name in AS_JSON else each for name, each in stored.items()}
    ordered = {name: row[name] for name in COLUMNS if name in row}
    return encode_row(cast("ResultRow", ordered))


def finish_file(partial: str, path: str) -> None:
    """Replace a JSONL file of result rows by a Parquet file."""
    arrow = import_arrow()
    unfinished = f"{path}.unfinished"
    schema = table_of_rows([]).schema
    with (
        open(partial, "rb") as lines,
        arrow.parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer,
    ):
        while rows := [json.loads(line) for line in itertools.islice(lines, ROWS)]:
            writer.write_table(table_of_rows(rows))
    os.replace(unfinished, path)
    os.remove(partial)
