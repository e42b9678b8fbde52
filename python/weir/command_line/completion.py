"""Completes command lines: scripts for bash, zsh and fish, and the words that they ask for.

A script asks `weir __complete -- WORD...` with the words up to the cursor. Flags come from the program's own --help at
that moment, fields of --set from the messages of the job, so that a script stays right when a program changes.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, Sequence

from weir import programs
from weir.errors import WeirError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["SHELLS", "answer", "complete", "script"]

SHELLS = ("bash", "zsh", "fish")
# A program prints its flags at once; one that does not is none of ours.
_HELP_SECONDS = 5


class Word(NamedTuple):
    """A word that may stand at the cursor."""

    text: str
    about: str = ""


class Answer(NamedTuple):
    """What may stand at the cursor."""

    words: Sequence[Word] = ()
    # Files, too, behind this text ("--job="); None: no files.
    files: Optional[str] = None


class _Flag(NamedTuple):
    name: str
    about: str
    # Default as the help prints it, "" without one.
    default: str

    @property
    def is_boolean(self) -> bool:
        return self.default in ("true", "false")

    @property
    def choices(self) -> list[str]:
        """Returns the values that the help lists at its beginning: "text or json (default: text)"."""
        plain = re.sub(r" ?\([^()]*\)", "", self.about)
        found = re.match(r"(?:\S+: )?([a-z_]+(?:, [a-z_]+)*,? or [a-z_]+)(?![\w ])", plain)
        return re.split(r",? or |, ", found[1]) if found else []

    @property
    def takes_file(self) -> bool:
        if self.default and re.fullmatch(r"-?[\d.]+", self.default):
            return False
        return self.name in ("job", "input", "out", "output") or bool(re.search(r"\bfiles?\b|\bdirector", self.about))


class _Help(NamedTuple):
    flags: Sequence[_Flag]
    # Words that may come first: `checkpoint list`.
    commands: Sequence[Word]


def _read_help(program: str, text: str) -> _Help:
    """Reads what a program prints with --help."""
    flags: dict[str, _Flag] = {}
    for found in re.finditer(r"^  --(\w+)  (.*)$", text, re.M):
        default = re.search(r" ?\(default: ([^()]*)\)$", found[2])
        about = found[2][: default.start()] if default else found[2]
        flags[found[1]] = _Flag(found[1], about, default[1] if default else "")
    commands: dict[str, Word] = {}
    for found in re.finditer(rf"^{re.escape(program)} ([a-z]+)\b(.*)$", text, re.M):
        about = found[2].rpartition("   ")[2].strip()
        commands.setdefault(found[1], Word(found[1], about))
    return _Help(list(flags.values()), list(commands.values()))


def _help_of(path: str, program: str) -> _Help:
    """Asks a program; nothing if it cannot be asked."""
    try:
        done = subprocess.run(
            [path, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            timeout=_HELP_SECONDS)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return _Help([], [])
    return _read_help(program, done.stdout)


# ------------------------------------------------------------------------------------------------------ fields of --set


def _comes_with(field: "FieldDescriptor") -> str:
    """Returns what follows the name of a field in a path."""
    from weir.fields import is_repeated

    if field.message_type is None:
        return "="
    return "[0]." if is_repeated(field) else "."


def _type_name(field: "FieldDescriptor") -> str:
    from weir.fields import is_repeated

    named = field.message_type or field.enum_type
    scalars = {1: "integer", 2: "integer", 3: "integer", 4: "integer", 5: "number", 6: "number", 7: "true or false",
               9: "text"}
    name = named.name if named is not None else scalars.get(field.cpp_type, "")
    return f"list of {name}" if is_repeated(field) else str(name)


def _message_at(message: Any, path: str) -> Optional["Descriptor"]:
    """Returns the message whose field a path ("data.ids.min") ends with; None if there is none.

    `message` is a Descriptor; types-protobuf has another type for that of a message.
    """
    for part in path.split(".")[:-1]:
        field = message.fields_by_name.get(re.sub(r"\[\d+\]$", "", part))
        if field is None or field.message_type is None:
            return None
        message = field.message_type
    found: Descriptor = message
    return found


def _settings(text: str, before: str) -> list[Word]:
    """Returns words for the value of --set, each with `before` in front: "train.ep" gives "train.epochs="."""
    from weir.protos import job_pb2

    path, equals, value = text.partition("=")
    message = _message_at(job_pb2.JobConfig.DESCRIPTOR, path)
    if message is None:
        return []
    stem, _, name = path.rpartition(".")
    stem = f"{stem}." if stem else ""
    if not equals:
        return [Word(f"{before}{stem}{field.name}{_comes_with(field)}", _type_name(field))
                for field in message.fields if field.name.startswith(name)]
    field = message.fields_by_name.get(re.sub(r"\[\d+\]$", "", name))
    if field is None:
        return []
    if field.enum_type is not None:
        values = [each.name for each in field.enum_type.values]
    else:
        values = ["true", "false"] if field.cpp_type == field.CPPTYPE_BOOL else []
    return [Word(f"{before}{path}={each}") for each in values if each.startswith(value)]


# ------------------------------------------------------------------------------------------------------------- programs


def _value(flag: _Flag, text: str, before: str) -> Answer:
    """Completes the value of a flag. `before` stands in the same word in front of it."""
    if flag.name == "set":
        return Answer(_settings(text, before))
    if flag.is_boolean:
        return Answer([Word(before + each) for each in ("true", "false") if each.startswith(text)])
    if flag.choices:
        return Answer([Word(before + each) for each in flag.choices if each.startswith(text)])
    return Answer(files=before) if flag.takes_file else Answer()


def _program(help_: _Help, arguments: Sequence[str]) -> Answer:
    """Completes the last of a program's arguments."""
    flags = {each.name: each for each in help_.flags}
    word = arguments[-1]
    if "--" in arguments[:-1]:
        return Answer(files="")
    if word.startswith("-"):
        name, equals, value = word.partition("=")
        if equals:
            flag = flags.get(name.lstrip("-").replace("-", "_"))
            return _value(flag, value, f"{name}=") if flag else Answer()
        dashes = "-" if re.match(r"-\w", word) else "--"
        typed = word.lstrip("-").replace("-", "_")
        return Answer([Word(f"{dashes}{each.name}{'' if each.is_boolean or each.name == 'set' else '='}", each.about)
                       for each in help_.flags if each.name.startswith(typed)])
    before = arguments[-2] if len(arguments) > 1 else ""
    if before.startswith("-") and "=" not in before:
        flag = flags.get(before.lstrip("-").replace("-", "_"))
        if flag is not None and not flag.is_boolean:
            return _value(flag, word, "")
    if help_.commands and len(arguments) == 1:
        return Answer([each for each in help_.commands if each.text.startswith(word)])
    return Answer(files="")


def _of_program(path: str, program: str, arguments: Sequence[str]) -> Answer:
    """Completes the arguments of a program; those of launch behind -- are of the trainer."""
    if program == "launch" and "--" in arguments[:-1]:
        trainer = str(pathlib.Path(path).with_name("trainer"))
        if not os.path.isfile(trainer):
            trainer = str(programs.find("trainer"))
        return _program(_help_of(trainer, "trainer"), arguments[arguments.index("--") + 1:])
    return _program(_help_of(path, program), arguments)


def complete(words: Sequence[str], commands: Mapping[str, str]) -> Answer:
    """Returns what may stand in the place of the last word.

    The first word is the command: `weir`, `weir-trainer`, or the path of a program. `commands` are those of `weir`
    that run a program, with what they do.
    """
    if len(words) < 2:
        return Answer()
    command = os.path.basename(words[0])
    try:
        if command != "weir":
            program = command[len("weir-"):] if command.startswith("weir-") else command
            path = words[0] if "/" in words[0] else str(programs.find(program))
            return _of_program(path, program, words[1:])
        if len(words) == 2:
            known = {"train": "starts a cluster for a job", **commands, "completion": "prints a script for a shell",
                     "--help": "lists the commands", "--version": "prints the version"}
            return Answer([Word(name, about) for name, about in known.items() if name.startswith(words[1])])
        if words[1] == "completion":
            return Answer([Word(each) for each in SHELLS if each.startswith(words[-1])] if len(words) == 3 else ())
        if words[1] == "train":
            if len(words) == 3 and not words[2].startswith("-"):
                return Answer(files="")
            return _of_program(str(programs.find("launch")), "launch", words[2:])
        if words[1] in commands:
            return _of_program(str(programs.find(words[1])), words[1], words[2:])
    except WeirError:
        # The program is not installed: there is nothing to say, and no place to say it.
        pass
    return Answer()


def answer(words: Sequence[str], commands: Mapping[str, str]) -> str:
    """Returns the answer for a script: a line "word<tab>what it does" for each, and ":files BEFORE" for files."""
    found = complete(words, commands)
    lines = [f"{each.text}\t{each.about}" for each in found.words]
    if found.files is not None:
        lines.append(f":files {found.files}")
    return "".join(f"{each}\n" for each in lines)


# -------------------------------------------------------------------------------------------------------------- scripts

_BASH = r"""# Completion of weir for bash: source <(weir completion bash)
_weir_complete() {
  local rest=${COMP_LINE:0:COMP_POINT} words=() word line i
  # bash breaks words at = and :. Those between which there is no blank are one.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((i == COMP_CWORD)); then
      word=${rest#"${rest%%[![:space:]]*}"}
    fi
    if ((i > 0)) && [[ $rest != [[:space:]]* ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    rest=${rest#"${rest%%[![:space:]]*}"}
    rest=${rest#"$word"}
  done
  local current=${words[${#words[@]}-1]} cut=
  # bash replaces only what is behind the last of these.
  if [[ $COMP_WORDBREAKS == *=* && $current == *=* ]]; then cut=${current%"${current##*=}"}; fi
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == ":files "* ]]; then
      local before=${line#:files }
      compopt -o filenames 2>/dev/null
      while IFS= read -r word; do
        word=$before$word
        COMPREPLY+=("${word#"$cut"}")
      done < <(compgen -f -- "${current#"$before"}")
    else
      word=${line%%$'\t'*}
      case $word in *[=.]) compopt -o nospace 2>/dev/null ;; esac
      if [[ $word == "$current"* ]]; then COMPREPLY+=("${word#"$cut"}"); fi
    fi
  done < <(@COMMAND@ __complete -- "${words[@]}" 2>/dev/null)
}
complete -F _weir_complete @NAMES@
"""

_ZSH = r"""#compdef @NAMES@
# Completion of weir for zsh: source <(weir completion zsh), behind compinit.
_weir_complete() {
  local line word before
  local -a plain open shown_plain shown_open
  for line in "${(@f)$(@COMMAND@ __complete -- "${(@)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
    if [[ $line == ":files "* ]]; then
      before=${line#:files }
      [[ -n $before ]] && compset -P "${(b)before}"
      _files
      continue
    fi
    word=${line%%$'\t'*}
    [[ -n $word ]] || continue
    if [[ $word == *[=.] ]]; then
      open+=("$word")
      shown_open+=("$word  ${line#*$'\t'}")
    else
      plain+=("$word")
      shown_plain+=("$word  ${line#*$'\t'}")
    fi
  done
  (( $#open )) && compadd -l -S '' -d shown_open -- "${open[@]}"
  (( $#plain )) && compadd -l -d shown_plain -- "${plain[@]}"
  return 0
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _weir_complete @NAMES@
"""

_FISH = r"""# Completion of weir for fish: weir completion fish | source
function __weir_complete
  set -l current (commandline -ct)
  for line in (@COMMAND@ __complete -- (commandline -opc) "$current" 2>/dev/null)
    if string match -q ':files *' -- $line
      set -l before (string replace ':files ' '' -- $line)
      set -l length (string length -- "$before")
      for path in (__fish_complete_path (string sub -s (math $length + 1) -- "$current"))
        echo $before$path
      end
    else
      echo $line
    end
  end
end
for each in @NAMES@
  complete -c $each -f -a '(__weir_complete)'
end
"""


def _command() -> str:
    """Returns the words by which a script calls this command again."""
    if os.path.basename(sys.argv[0]) != "__main__.py":
        return "weir"
    # As `python3 -m weir`: with the same Python, and where it found the package.
    package = str(pathlib.Path(__file__).resolve().parent.parent.parent)
    return f"env {shlex.quote(f'PYTHONPATH={package}')} {shlex.quote(sys.executable)} -m weir"


def script(shell: str, names: Sequence[str]) -> str:
    """Returns the script for a shell that completes commands of these names."""
    text = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]
    return text.replace("@COMMAND@", _command()).replace("@NAMES@", " ".join(map(shlex.quote, names)))
