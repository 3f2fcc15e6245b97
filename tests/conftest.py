"""Fixtures that several directories of tests share."""

pytest_plugins = ["tests.spark_session"]
