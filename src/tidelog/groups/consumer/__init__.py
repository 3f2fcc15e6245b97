"""Consumer groups whose assignments the broker computes (KIP-848)."""

# Core that logs: no clock, no I/O, no await.
