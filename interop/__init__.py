"""Whether guerdon and ``openenv`` understand each other, tried out on both: ``make interop``."""
