"""Codenames: a spymaster and a guesser, each with a reward of its own."""
