"""``guerdon arena``: which credit assignment learns, in which worlds, and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from guerdon.cli import options
from guerdon.cli.console import cell, console, print_json, print_parts, table

if TYPE_CHECKING:
    from guerdon.arena.protocol import Protocol
    from guerdon.arena.report import Row
    from guerdon.arena.runner import MethodFailure, MethodResult, Results


def arena(
    worlds: Annotated[
        str | None, typer.Option(metavar="A,B", help="The worlds, or file.py:name; by default all.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="The methods, registered estimators or file.py:name; by default all methods.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=3, help="Evaluation seeds; the sweep and the batches shrink alike."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="F.jsonl", help="The results; an existing file is continued.")
    ] = Path("arena.jsonl"),
    page: Annotated[
        Path | None,
        typer.Option(metavar="F.md", help="Write the results as a page, with a plot per world."),
    ] = None,
    protocol: Annotated[
        Path | None, typer.Option(metavar="F.yaml", help="The rules, in place of the package's.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Pairs at once; by default one for each CPU.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Train with every credit assignment in worlds whose exact advantage is known.

    Each method gets a learning rate from a sweep on seeds that are not used again, and is then
    evaluated on others. The rule is in a file, which the results contain. The exact advantage is
    among the methods: no estimator should be ahead of it.

    [bold]Exit codes[/bold]: 0, all methods were evaluated. 1, an estimator failed. 2, the command
    could not run. 130, ctrl-C; the same command goes on.
    """
    from guerdon.arena.protocol import Protocol
    from guerdon.arena.report import rows_by_world
    from guerdon.arena.runner import MethodFailure, run_arena

    rules = Protocol.read(protocol)
    if seeds is not None:
        rules = rules.with_seeds(seeds)
    err = console(stderr=True)

    def show(result: MethodResult | MethodFailure, finished: int, total: int) -> None:
        what = f"{finished}/{total} {result.world} {result.method}"
        error = getattr(result, "error", None)
        err.print(Text(f"{what}: {error}" if error else what))

    results = run_arena(
        out, worlds=_names(worlds), methods=_names(methods), protocol=rules, processes=processes,
        progress=show,
    )  # fmt: skip
    rows = rows_by_world(results, rules)
    if page is not None:
        _write_page(page, results, rows, rules)
    if as_json:
        print_json(
            {"protocol": rules.model_dump(mode="json"), "results": list(map(asdict, results))}
        )
    else:
        print_parts(_tables(rows, rules))
    if any(isinstance(each, MethodFailure) for each in results):
        raise typer.Exit(options.ExitCode.FAILED)


def _names(listed: str | None) -> list[str] | None:
    return None if listed is None else [each.strip() for each in listed.split(",")]


def _write_page(
    path: Path, results: Results, rows: dict[str, list[Row]], protocol: Protocol
) -> None:
    from guerdon.arena.model import Model
    from guerdon.arena.plots import plot_curves, plot_world
    from guerdon.arena.report import page
    from guerdon.arena.worlds import find_world

    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for name, of_world in rows.items():
        world = find_world(name)
        plot_world(Model.of(world), folder / f"{world.name}-world.svg")
        plot_curves(of_world, folder / f"{world.name}.svg")
    path.write_text(page(results, protocol, plots=folder.name), encoding="utf-8")


def _tables(rows: dict[str, list[Row]], protocol: Protocol) -> Iterator[Table | Text]:
    from guerdon.arena.report import findings, shown_interval

    for world, of_world in rows.items():
        made = table(
            "method", "rate", f"updates to {protocol.target:.0%}", "area",
            f"updates ÷ {protocol.baseline}'s", numbers=True,
        )  # fmt: skip
        made.title = world
        for row in of_world:
            made.add_row(
                cell(row.result.method), f"{row.result.learning_rate:g}",
                shown_interval(row.updates, 0), shown_interval(row.area, 3),
                shown_interval(row.versus.ratio) if row.versus else "",
            )  # fmt: skip
        yield made
    yield Text("\n".join(findings(rows, protocol)))
