"""Training under a policy, and its command."""
