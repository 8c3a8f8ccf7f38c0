"""Chess: an outcome that is known at the end, beside what each move changes on the board."""
