# Core: no clock, no I/O, no await.
