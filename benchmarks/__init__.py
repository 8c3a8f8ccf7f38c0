"""Benchmarks of guerdon, compared with other code for the same work.

``make bench`` or ``python -m benchmarks`` prints one table. The exit code doesn't depend on the
results, because the load of the machine affects them.
"""
