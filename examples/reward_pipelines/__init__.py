"""Reward pipelines: written in files, changed while they run, judged by a model through MCP."""
