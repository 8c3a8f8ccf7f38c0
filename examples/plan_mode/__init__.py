"""Plan mode: an agent writes a plan, carries it out, and the plan earns what this reached."""
