"""Tests of guerdon and ``openenv`` against each other: ``make interop``."""
