"""Small, complete uses of guerdon, each run by a test."""
