"""An environment in which an agent writes programs that must pass hidden tests."""
