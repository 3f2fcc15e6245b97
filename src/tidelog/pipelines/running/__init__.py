"""Running a pipeline: its queries, their progress and what is seen of them."""
