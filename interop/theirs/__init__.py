"""Modules for the interpreter with ``openenv``."""
