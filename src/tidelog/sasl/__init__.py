"""SASL mechanisms, server and client sides, and the login of a connection."""

# Core: no clock, no I/O, no await.
