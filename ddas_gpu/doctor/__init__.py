"""`ddas doctor`: what this machine has, whether all results are exact on it, and how fast it is."""
