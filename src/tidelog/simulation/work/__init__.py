"""Kinds of client work on a simulated cluster, each with its checks; `simulation.workload` runs them."""
