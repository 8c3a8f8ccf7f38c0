"""Tests of ``guerdon.integrations`` with the real trainers: ``make trainers``.

Each trainer has an environment of its own in ``.trainers``, because their packages conflict.
"""
