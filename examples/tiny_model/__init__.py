"""A server with OpenAI's protocol for a tiny language model, which needs no GPU and no download.

The model's weights are random and its answers make no sense; but they are sampled, so that token
limits, streams, log-probabilities, broken tool calls and slowness are those of a real model::

    python -m examples.tiny_model --port 8000
"""
