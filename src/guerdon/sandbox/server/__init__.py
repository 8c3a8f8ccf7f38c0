"""What runs in a worker's processes: the keeper, the template, and the calls under them."""
