"""Run folders, and the loop that runs any job to its end."""
