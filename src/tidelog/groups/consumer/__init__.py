"""Consumer group protocol with assignments by the broker (KIP-848)."""

# Core that logs: no clock, no I/O, no await.
