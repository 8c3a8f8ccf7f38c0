"""The command line: ``guerdon``."""

from guerdon.cli.app import app, main

__all__ = ["app", "main"]
