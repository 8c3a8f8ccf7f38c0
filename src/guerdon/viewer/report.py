"""`write_report`: the page with its data in one file, which needs no server and no network."""

from __future__ import annotations

import base64
import gzip
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from guerdon._pages import PAGES
from guerdon.errors import GuerdonError, InvalidArgumentError
from guerdon.viewer.bundle import bundled_page
from guerdon.viewer.columns import Array
from guerdon.viewer.files import MAX_ROWS, ViewedFile, packed_header

__all__ = ["write_report"]

MB = 1_000_000


def write_report(
    files: Sequence[ViewedFile],
    out: Path,
    *,
    max_mb: float = 20.0,
    sample: int | None = None,
    seed: int = 0,
) -> int:
    """Write the page with the data of some files as one HTML file, which can be sent to others.

    Example:
        >>> import pathlib
        >>> from guerdon.viewer import FileIndex, ViewedFile
        >>> def report(path):
        ...     with FileIndex(path) as index:
        ...         return write_report([ViewedFile(index)], pathlib.Path("report.html"))

    Args:
        files: The files.
        out: The report.
        max_mb: The largest report, in megabytes.
        sample: How many rows of each file it contains, at most; by default all. Groups are chosen
            at random and are whole.
        seed: The seed of the choice.

    Returns:
        The size of the report, in bytes.

    Raises:
        InvalidArgumentError: The report would be larger; nothing is written.
        GuerdonError: The report can't be written.
    """
    chosen = [_chosen(file, sample, seed) for file in files]
    data = base64.b64encode(_compressed(files, chosen, int(max_mb * MB))).decode()
    document = bundled_page(PAGES, data).encode()
    if len(document) > max_mb * MB:
        raise _too_large(max_mb * MB)
    # Beside it, so that an older report stays until this one is complete.
    target = out.resolve()
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():  # a device, or a pipe
            target.write_bytes(document)
        else:
            draft.write_bytes(document)
            draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise GuerdonError(f"can't write {out}: {error.strerror}") from error
    return len(document)


def _too_large(most: float) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the report would have more than {most / MB:g} MB; --sample N limits the rows, and "
        "--max-mb allows more"
    )


def _chosen(file: ViewedFile, sample: int | None, seed: int) -> Array:
    """The rows of a file that the report contains, in ascending order."""
    if sample is None or sample >= file.rows:
        return np.arange(file.rows)
    rng = np.random.default_rng(seed)
    store = file.index.store
    column = store.columns.get("group")
    if column is None or column.type != "category":
        return np.sort(rng.choice(file.rows, sample, replace=False))
    groups = store.read("group")
    # Each row without a group is one of its own.
    alone = np.flatnonzero(groups < 0)
    groups[alone] = len(column.values) + np.arange(len(alone))
    place = rng.permutation(len(column.values) + len(alone))[groups]
    order = np.argsort(place, kind="stable")
    whole = order[:sample]
    if place[order[sample]] == place[whole[-1]] and place[whole[0]] != place[whole[-1]]:
        whole = whole[place[whole] != place[whole[-1]]]  # the last group isn't whole
    return np.sort(whole)


def _compressed(files: Sequence[ViewedFile], chosen: Sequence[Array], most: int) -> bytes:
    """The data of the report: a header, the columns of each file and its rows, compressed."""
    header: dict[str, Any] = {"files": [], "columns": [], "rows": []}
    target = io.BytesIO()
    with tempfile.TemporaryFile() as body:
        for number, (file, rows) in enumerate(zip(files, chosen, strict=True)):
            header["files"].append({"index": number, **_info(file, rows)})
            header["columns"].append(_write_columns(file, rows, body))
            offset = body.tell()
            for line in _lines(file, rows):
                body.write(line)
            header["rows"].append({"offset": offset, "bytes": body.tell() - offset})
            body.write(bytes(-body.tell() % 8))
        body.seek(0)
        with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=9, mtime=0) as compressed:
            compressed.write(packed_header(header))
            while piece := body.read(MB):
                compressed.write(piece)
                if target.tell() > most:
                    raise _too_large(most)
    return target.getvalue()


def _info(file: ViewedFile, rows: Array) -> dict[str, Any]:
    info = file.info()
    if len(rows) == file.rows:
        return info
    note = f"a random sample of {len(rows):,} of {file.rows:,} rows"
    info |= {"rows": len(rows), "duplicates": file.index.duplicates(rows)}
    info["note"] = "; ".join(filter(None, [note, info["note"]]))
    if file.rollouts is not None:
        info["without_rollout"] = int((file.join(file.rollouts)[rows] < 0).sum())
    return info


def _write_columns(file: ViewedFile, rows: Array, body: IO[bytes]) -> dict[str, Any]:
    names = [each["name"] for each in file.info()["columns"] if each["type"] != "text"]
    header, columns = file.columns(names)
    for column, parts in zip(header["columns"], columns, strict=True):
        entries = np.concatenate(list(parts))[rows]
        column |= {"offset": body.tell(), "bytes": entries.nbytes}
        body.write(entries.tobytes() + bytes(-entries.nbytes % 8))
    return {**header, "rows": len(rows)}


def _lines(file: ViewedFile, rows: Array) -> Iterator[bytes]:
    for start in range(0, len(rows), MAX_ROWS):
        for row in rows[start : start + MAX_ROWS].tolist():
            yield from file.read([row])
