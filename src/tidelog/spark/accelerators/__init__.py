"""Accelerators: what makes Spark faster by knowing its inside. Everything works without them, only slower.

Each stands in a module of its own and has one switch, `spark.tidelog.accelerate.<name>` (`switches.py`). All of them
are off with a PySpark that they were not tested with.
"""
