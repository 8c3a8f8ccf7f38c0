"""Testing an untrusted program; inside a sandbox, this is the package ``guerdon_testing``."""
