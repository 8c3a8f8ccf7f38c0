"""tau-bench's airline: its tools on a database, and a reward that replays a conversation."""
