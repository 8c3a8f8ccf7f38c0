"""Reward pipelines: written in files, changed while they run, judged by a model through MCP.

- `coding`: the coding environment with a composer of three components, from ``coding_reward.yaml``.
- `chess_shaping`: a chess-like game (`knight`) whose shaping a training script takes away, through
  ``POST /config``.
- `style_judge`: a judge of style as an MCP server, and the rubric that asks it.
"""
