"""Table sinks that hold every micro-batch exactly once: Parquet directories, Delta and Iceberg tables."""
