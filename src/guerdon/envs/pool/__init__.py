"""Many environments, stepped together."""
