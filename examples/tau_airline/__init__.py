"""tau-bench's airline as an environment, with its reward for live and recorded episodes."""
