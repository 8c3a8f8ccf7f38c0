"""Playing rollouts: policies, and the worker that plays them in an environment."""
