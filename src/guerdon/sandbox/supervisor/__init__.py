"""What runs in the processes of a worker: the supervisor, templates, and the calls under them."""
