"""What guerdon costs, side by side with what else could do the same.

``make bench``, or ``python -m benchmarks``, prints one table. It measures and never judges by its
exit code: a machine that is busy with something else gives other numbers than an idle one.
"""
