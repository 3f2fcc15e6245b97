"""Completion scripts for bash, zsh and fish, from the tree of commands."""

# Core: no clock, no I/O, no await.

import re
from collections.abc import Iterator

from tidelog.cli.command_tree import Command, Option

MAX_DESCRIPTION = 70


def bash_script(root: Command) -> str:
    return f"""\
# bash completion of tidelog. Load it: source <(tidelog completion bash)
_tidelog() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path="" word words="" files=""
{_indented(_walk())}
  case "$path $previous" in
{_indented(_values(root), 4)}
  esac
  case "$path" in
{_indented(_words(root), 4)}
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
  [[ -n $files && ${{#COMPREPLY[@]}} -eq 0 ]] && {{ compopt -o default; COMPREPLY=(); }}
}}
complete -F _tidelog tidelog
"""


def _walk() -> list[str]:
    """Words so far that are commands make the path; the first other word ends it."""
    return [
        'for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '  case "$path $word" in',
        '    @PATHS@) path="$path $word" ;;',
        "  esac",
        "done",
    ]


def _spelled(command: Command) -> str:
    return "".join(f" {name}" for name in command.path)


def _values(root: Command) -> Iterator[str]:
    """What follows an option that takes a value."""
    for command in root.all():
        for option in command.options:
            if option.takes_value:
                cases = "|".join(f'"{_spelled(command)} {name}"' for name in option.names)
                if option.values:
                    answer = f'COMPREPLY=( $(compgen -W "{" ".join(option.values)}" -- "$current") )'
                else:
                    answer = "compopt -o default; COMPREPLY=()" if option.takes_file else "COMPREPLY=()"
                yield f"{cases}) {answer}; return ;;"


def _words(root: Command) -> Iterator[str]:
    for command in root.all():
        names = [each.path[-1] for each in command.commands]
        names += [name for option in command.options for name in option.names]
        files = " files=yes" if command.takes_files else ""
        yield f'"{_spelled(command)}") words="{" ".join([*names, *command.arguments])}"{files} ;;'


def zsh_script(root: Command) -> str:
    cases = []
    for command in root.all():
        lines = [f'"{_spelled(command)}")']
        described = [(each.path[-1], each.help) for each in command.commands]
        described += [(value, "") for value in command.arguments]
        described += [(option.names[-1], option.help) for option in command.options]
        files = ["  files_=yes"] if command.takes_files else []
        lines += [f"  words_=({' '.join(_zsh_word(*each) for each in described)})", *files, "  ;;"]
        cases += lines
    return f"""\
#compdef tidelog
# zsh completion of tidelog. Put it into a directory of $fpath: tidelog completion zsh > ~/.zfunc/_tidelog
_tidelog() {{
  local path_="" files_="" word_ words_ previous_=${{words[CURRENT-1]}}
  for word_ in ${{words[2,CURRENT-1]}}; do
    case "$path_ $word_" in
      @PATHS@) path_="$path_ $word_" ;;
    esac
  done
  case "$path_ $previous_" in
{_indented(_zsh_values(root), 4)}
  esac
  case "$path_" in
{_indented(cases, 4)}
  esac
  _describe 'tidelog' words_ || [[ -z $files_ ]] || _files
}}
if [ "$funcstack[1]" = "_tidelog" ]; then _tidelog "$@"; else compdef _tidelog tidelog; fi
"""


def _zsh_word(word: str, text: str) -> str:
    described = f"{word}:{_short(text)}" if text else word
    return "'" + described.replace("'", "'\\''") + "'"


def _zsh_values(root: Command) -> Iterator[str]:
    for command in root.all():
        for option in command.options:
            if option.takes_value:
                cases = "|".join(f'"{_spelled(command)} {name}"' for name in option.names)
                answer = (
                    f"compadd {' '.join(option.values)}" if option.values else "_files" if option.takes_file else ":"
                )
                yield f"{cases}) {answer}; return ;;"


def fish_script(root: Command) -> str:
    lines = [
        "# fish completion of tidelog. Put it into ~/.config/fish/completions/tidelog.fish",
        "function __tidelog_at",
        '    set -l path ""',
        "    for word in (commandline -opc)[2..]",
        '        switch "$path $word"',
        "            case @FISH_PATHS@",
        '                set path "$path $word"',
        "        end",
        "    end",
        '    test "$path" = "$argv[1]"',
        "end",
        "complete -c tidelog -f",
    ]
    for command in root.all():
        at = f"complete -c tidelog -n '__tidelog_at \"{_spelled(command)}\"'"
        lines += [f"{at} -a {each.path[-1]} -d {_fish_text(each.help)}" for each in command.commands]
        lines += [f"{at} -a {value}" for value in command.arguments]
        lines += [f"{at} -F"] if command.takes_files else []
        lines += [f"{at} {_fish_option(option)}" for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    value = ""
    if option.takes_value:
        value = " -r -F" if option.takes_file else " -x" + (f" -a '{' '.join(option.values)}'" if option.values else "")
    return f"{names}{value} -d {_fish_text(option.help)}"


def _fish_text(text: str) -> str:
    return "'" + _short(text).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _short(text: str) -> str:
    """The first words: a list of completions has one line for each."""
    first = re.split(r"[;(]| such as ", text)[0].strip()
    return first if len(first) <= MAX_DESCRIPTION else f"{first[: MAX_DESCRIPTION - 3]}..."


def _indented(lines: "Iterator[str] | list[str]", columns: int = 2) -> str:
    return "\n".join(" " * columns + line for line in lines)


SHELLS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def completion_script(shell: str, root: Command) -> str:
    paths = [f'"{_spelled(command)}"' for command in root.all() if command.path]
    script = SHELLS[shell](root)
    return script.replace("@PATHS@", "|".join(paths)).replace("@FISH_PATHS@", " ".join(paths))
