"""Accelerators: optimisations that rely on Spark's internals. Everything works without them, only slower.

Each has its own module and one switch, `spark.tidelog.accelerate.<name>` (`switches.py`). All are off for a version
of PySpark that they were not tested with.
"""
