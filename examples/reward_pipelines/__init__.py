"""Reward pipelines: configured in files, changed while they run, with a judge behind MCP.

- `coding`: the coding environment with a composer of three components, from ``coding_reward.yaml``.
- `chess_shaping`: a chess-like game (`knight`) whose shaping a training script fades out with
  ``POST /config``.
- `style_judge`: a judge of style as an MCP server, and the rubric that calls it.
"""
