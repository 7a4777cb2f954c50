"""Run folders, and the loop that takes a job to its end."""
