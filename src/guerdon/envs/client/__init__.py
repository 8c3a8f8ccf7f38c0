"""Clients of environments on servers."""
