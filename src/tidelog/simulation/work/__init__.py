"""Kinds of client work on a simulated cluster, each with its judge; `simulation.workload` runs them."""
