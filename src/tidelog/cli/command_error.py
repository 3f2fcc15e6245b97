"""What a command refuses to do, as one sentence for whoever asked."""


class Refused(Exception):
    """Nothing was changed; the message says why, and what to do instead."""
