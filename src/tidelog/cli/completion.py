"""`tidelog completion`: completion of commands and options in bash, zsh and fish."""

import argparse

DESCRIPTION = """\
Print a script that completes the commands and options of this version in your shell.
"""
EPILOG = """\
  bash:  source <(tidelog completion bash)            add this line to ~/.bashrc
  zsh:   tidelog completion zsh > ~/.zfunc/_tidelog   with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish:  tidelog completion fish > ~/.config/fish/completions/tidelog.fish
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script for your shell",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.command_tree import command_tree
    from tidelog.cli.completion_scripts import completion_script
    from tidelog.cli.main import full_parser

    print(completion_script(options.shell, command_tree(full_parser())), end="")
    return 0
