"""``guerdon schema``: the JSON Schema of a reward's file."""

from __future__ import annotations

from guerdon.cli.console import print_json


def schema() -> None:
    """Print the JSON Schema of a reward's file, with which editors complete it.

    Write it to a file with `guerdon schema > reward.schema.json`, and name that in the first line
    of the reward: # yaml-language-server: $schema=reward.schema.json
    """
    from guerdon.config.json_schema import reward_schema

    print_json(reward_schema())
