# Core that logs: no clock, no I/O, no await.
