"""All attacks, and the process that runs one: `python -m tests.siege.catalogue NAME TARGET`, TARGET as JSON."""

import json
import resource
import sys
from collections.abc import Sequence

from tests.siege import costly_arguments, crowds, expansions, floods, growing_state, handshakes, strange_attacks
from tests.siege.attacks import ATTACKS, Attacker, Target

__all__ = [
    "ATTACKS",
    "costly_arguments",
    "crowds",
    "expansions",
    "floods",
    "growing_state",
    "handshakes",
    "strange_attacks",
]


def main(arguments: Sequence[str]) -> None:
    name, target = arguments
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    ATTACKS[name].run(Attacker(Target(**json.loads(target))))


if __name__ == "__main__":
    main(sys.argv[1:])
