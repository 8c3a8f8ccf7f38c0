"""Locking a process for good: its files, user, limits and system calls.

It is imported by interpreters that find only this package and ``landlockpy``, and needs no other.
"""
