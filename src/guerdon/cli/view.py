"""``guerdon view``: look at result rows, rollouts, comparisons and logs in a browser."""

from __future__ import annotations

import contextlib
import os
import secrets
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from guerdon._http import bound_socket, is_loopback, serve_asgi, url_of
from guerdon.cli import options
from guerdon.cli.console import console, one_line, warn
from guerdon.errors import InvalidArgumentError

if TYPE_CHECKING:
    from guerdon.viewer.files import ViewedFile


def view(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Rows of [bold]guerdon score --out[/bold] or [bold]guerdon diff --out[/bold], the "
            "rewards.jsonl of a RewardLogger, or results of [bold]guerdon arena[/bold], as JSONL.",
        ),
    ],
    rollouts: Annotated[
        str | None,
        typer.Option(metavar="F", help="The rollouts of the rows as JSONL, joined by their ids."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="F.html",
            help="Write a report instead: the page and its data in one file that needs no network.",
        ),
    ] = None,
    max_mb: Annotated[
        float, typer.Option(metavar="MB", min=0.1, help="The largest report.")
    ] = 20.0,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="At most N rows of each file, of whole groups, in the report."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The seed of the sample.")] = 0,
    host: options.Host = "127.0.0.1",
    port: options.Port = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, and don't open a browser.")
    ] = False,
) -> None:
    """Look at rewards: scores and components, rollouts, groups, comparisons and training runs.

    Opens a page in the browser until ctrl-C. The page is served to this machine only, and its
    address has a token. A file is read once, and its index is kept in the folder of the user's
    caches; a file that grows is followed.

    With --out, the page and its data are written to one HTML file, which can be sent to others.
    """  # fmt: skip
    with contextlib.ExitStack() as stack:
        opened = _open(files, rollouts, stack)
        if out is not None:
            read = files if rollouts is None else [*files, rollouts]
            if out.exists() and any(os.path.samefile(out, path) for path in read):
                raise InvalidArgumentError(f"--out must not be one of the files: {out}")
            _write(opened, out, max_mb=max_mb, sample=sample, seed=seed)
        elif sample is not None:
            raise InvalidArgumentError("--sample requires a report: --out F.html")
        else:
            _serve(opened, host, port, opens=not no_open)


def _open(files: list[str], rollouts: str | None, stack: contextlib.ExitStack) -> list[ViewedFile]:
    from guerdon.viewer.files import ViewedFile
    from guerdon.viewer.index import FileIndex

    def index(path: str) -> FileIndex:
        with console(stderr=True).status(f"reading {path}"):
            return stack.enter_context(FileIndex(path))

    joined = None if rollouts is None else index(rollouts)
    if joined is not None and joined.kind != "rollouts":
        raise InvalidArgumentError(f"--rollouts must be a file of rollouts, got {rollouts}")
    # Logs of several runs have the same name, in a folder each.
    has_twins = len({Path(path).name for path in files}) < len(files)
    opened = [ViewedFile(index(path), joined, name=path if has_twins else None) for path in files]
    for path, file in zip(files, opened, strict=True):
        if file.index.kind == "rollouts":
            raise InvalidArgumentError(
                f"{path} has rollouts without scores; score them with guerdon score --out, and add "
                f"--rollouts {path}"
            )
    return opened


def _write(
    files: list[ViewedFile], out: Path, *, max_mb: float, sample: int | None, seed: int
) -> None:
    from guerdon.viewer.report import MB, write_report

    size = write_report(files, out, max_mb=max_mb, sample=sample, seed=seed)
    one_line(f"written to {out}: {size / MB:.2f} MB")


def _serve(files: list[ViewedFile], host: str, port: int, *, opens: bool) -> None:
    from guerdon.viewer.app import ViewerApp

    token = secrets.token_urlsafe(24)
    app = ViewerApp(files, token)
    with bound_socket(host, port) as bound:
        app.on_loopback = is_loopback(bound.getsockname()[0])
        if not app.on_loopback:
            warn(f"anyone who reaches {host} and has the token can read these files")
        address = f"{url_of(bound)}/?token={token}"

        def ready() -> None:
            one_line(f"showing {', '.join(each.index.path.name for each in files)} at {address}")
            if opens:
                webbrowser.open(address)

        serve_asgi(app, bound, grace_s=1, ready=ready, stopping=app.stop)
