"""An environment in which an agent writes programs, and hidden tests judge them."""
