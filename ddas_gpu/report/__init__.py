"""The report of a run and the comparison of several, as self-contained web pages."""
