"""Data-parallel runs: ranks, their share of a batch, and collectives."""
