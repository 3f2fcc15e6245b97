"""What a pipeline is, and how its file is read."""
