"""The search: Algorithm 1 of the paper, and its command."""
