"""Training in the credit arena through guerdon's public API alone."""
