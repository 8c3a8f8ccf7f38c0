"""What makes a process ``strict``: files, user, limits and system calls, locked for good.

It is imported by interpreters that find only this package and ``landlockpy``, and needs no other.
"""
