"""Data sets: where they lie, how they are read, and the subsets a run takes of them."""
