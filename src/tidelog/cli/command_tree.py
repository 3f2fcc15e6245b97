"""Commands, options and their values, as the parsers declare them: the source of shell completion."""

# Core: no clock, no I/O, no await.

import argparse
from collections.abc import Iterator
from typing import NamedTuple

FILE_METAVARS = ("FILE", "PATH", "DATA", "DIR")


class Option(NamedTuple):
    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...] = ()
    """All possible values; none if they are not known."""
    takes_file: bool = False


class Command(NamedTuple):
    path: tuple[str, ...]
    """`("topic", "create")`; empty for `tidelog` itself."""
    help: str
    options: tuple[Option, ...]
    commands: tuple["Command", ...]
    arguments: tuple[str, ...] = ()
    """Possible values of arguments that are not options."""
    takes_files: bool = False

    def all(self) -> Iterator["Command"]:
        """This one and all below it."""
        yield self
        for each in self.commands:
            yield from each.all()


def command_tree(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), text: str = "") -> Command:
    options: list[Option] = []
    commands: list[Command] = []
    arguments: list[str] = []
    takes_files = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            commands += [
                command_tree(inner, (*path, name), helps.get(name, "")) for name, inner in action.choices.items()
            ]
        elif action.option_strings:
            options.append(_option(action))
        else:
            arguments += map(str, action.choices or ())
            takes_files = takes_files or action.metavar in FILE_METAVARS
    return Command(path, text, tuple(options), tuple(commands), tuple(arguments), takes_files)


def _option(action: argparse.Action) -> Option:
    return Option(
        tuple(action.option_strings),
        _one_line(action.help),
        action.nargs != 0,
        tuple(map(str, action.choices or ())),
        action.metavar in FILE_METAVARS,
    )


def _one_line(text: str | None) -> str:
    return "" if text in (None, argparse.SUPPRESS) else " ".join(str(text).replace("%%", "%").split())
