"""Writing YAML that is read back as what it was, by strict readers and lax ones."""

from __future__ import annotations

import re
from typing import Any

import yaml

from guerdon.config.plain_scalars import reads_as_text

__all__ = ["to_yaml"]


# Breaks of lines, which quotes other than these don't keep.
_BREAKS = re.compile("[\r\x85\u2028\u2029]")


class _Dumper(yaml.SafeDumper):
    """Writes values out where they are used, and quotes what some reader would not take as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # What YAML 1.1 takes for something else is quoted by PyYAML; this is for the rest.
    is_plain = reads_as_text(text) and not _BREAKS.search(text)
    style = None if is_plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(data: Any) -> str:
    r"""YAML of what JSON can hold.

    Example:
        >>> to_yaml({"rate": "1e-3", "name": "no"})
        'rate: "1e-3"\nname: \'no\'\n'
    """
    return yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
