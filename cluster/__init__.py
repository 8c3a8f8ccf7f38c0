"""Tests with real Ray, on a cluster of two nodes on this machine: ``make cluster``."""
