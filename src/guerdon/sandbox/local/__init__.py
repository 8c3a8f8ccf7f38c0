"""The sandboxes of this machine, from the host's side: workers, pools of them, what they run."""
