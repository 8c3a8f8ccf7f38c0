"""The text games of the package textarena: one environment, its rewards as rubrics."""
