"""`python -m tidelog` is `tidelog`."""

import sys


def run() -> int:
    """Ctrl-C ends the command without a stack trace also while modules are imported."""
    try:
        from tidelog.cli.main import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
