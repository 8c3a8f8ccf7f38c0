"""A chat with a simulated user, judged at its end: both are models behind service names."""
