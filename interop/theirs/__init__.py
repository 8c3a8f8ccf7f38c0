"""What runs under the interpreter that has ``openenv``."""
