"""Pipeline runs: streaming queries, their progress, state files and output."""
