"""Connect four: two players, a reward at the end of the game, and its discounting."""
