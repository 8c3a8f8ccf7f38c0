"""A chat with a simulated user, scored by a judge at its end; both models are services."""
