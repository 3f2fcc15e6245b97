"""Topics by name or by pattern: `*` and `?` are wildcards, which no topic name contains."""

# Core: no clock, no I/O, no await.

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from tidelog.cli.command_error import CommandError
from tidelog.cluster.topic_names import is_internal


def is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def chosen_topics(wanted: Sequence[str], known: Collection[str]) -> list[str]:
    """Each once, in the order of what was asked for. Internal topics match only patterns that begin with `_`."""
    chosen: dict[str, None] = {}
    for text in wanted:
        if not is_pattern(text):
            found = [text] if text in known else []
        else:
            found = [
                name
                for name in sorted(known)
                if fnmatchcase(name, text) and (text.startswith("_") or not is_internal(name))
            ]
        if not found:
            what = f"no topic matches {text}" if is_pattern(text) else f"topic {text} does not exist"
            raise CommandError(f"{what}; `tidelog topic list` lists the topics")
        chosen |= dict.fromkeys(found)
    return list(chosen)
