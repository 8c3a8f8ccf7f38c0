"""Connect four: two players, a reward that is known at the end, and its discounting."""
