"""The options, the exit codes and the checks that commands share."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Annotated

import typer

from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.scoring.reading import FORMATS


class ExitCode(IntEnum):
    """The exit codes of the command."""

    OK = 0
    FAILED = 1  # rows failed, or problems were found
    ERROR = 2  # the command could not run
    INTERRUPTED = 130  # ctrl-C
    BROKEN_PIPE = 141  # the reader of standard output left


Rollouts = Annotated[
    str,
    typer.Argument(
        metavar="ROLLOUTS",
        help="One rollout per line, or a JSON array: id, group, messages, ground_truth, and any "
        "other columns. Instead of messages: prompt and completion, or ShareGPT's conversations. "
        "[bold]-[/bold] reads standard input.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(FORMATS),
        help="The format of the rollouts; by default that of the file's suffix.",
    ),
]
GroundTruth = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column with the expected answer, such as answer or reward_model.ground_truth; by "
        "default ground_truth.",
    ),
]
By = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Break the results down by a column of the rollouts."),
]
ScoreFailed = Annotated[
    bool,
    typer.Option(
        "--score-failed",
        help="Also score episodes that ended with an error; by default their rows are invalid.",
    ),
]
Trees = Annotated[
    bool,
    typer.Option(
        "--trees",
        help="Also write the score of every rubric at each step into the rows of --out: values, "
        "weights, reasons, durations, a judge's prompt and answer. Rows are several times as "
        "large.",
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going",
        help="Score on when 10 rows in a row have failed because a service is unavailable or too "
        "slow. By default the command stops there, and nothing that was scored is lost.",
    ),
]
At = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="The position of the schedules of reward files: the episode, and the training step. "
        "By default the start.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")]

Environment = Annotated[
    str,
    typer.Argument(
        metavar="ENV",
        help="A folder with an environment.py, [bold]file.py:name[/bold], "
        "[bold]module:name[/bold], or a registered name.",
    ),
]
RewardFile = Annotated[
    str | None,
    typer.Option(
        "--reward",
        "-r",
        metavar="F.yaml",
        envvar="GUERDON_CONFIG",
        help="A reward file, which replaces the environment's own reward.",
    ),
]
Services = Annotated[
    str | None,
    typer.Option(
        metavar="F.yaml",
        help="A file of services by name, as under mcp_services in a reward file, in place of "
        "those.",
    ),
]
Host = Annotated[str, typer.Option(help="The address to listen on; loopback by default.")]
Port = Annotated[
    int, typer.Option("--port", "-p", min=0, max=65535, help="0 lets the system choose.")
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="GUERDON_TOKEN",
        help="The bearer token that clients must send. The variable is safer: other users can see "
        "a command line.",
    ),
]


def check_token(token: str | None) -> None:
    """Refuse an empty variable, which would start the server without a token.

    Raises:
        InvalidArgumentError: The variable is set and empty, and there is no option.
    """
    if token is None and os.environ.get("GUERDON_TOKEN") == "":
        raise InvalidArgumentError("GUERDON_TOKEN is set and empty; set a token, or unset it")
