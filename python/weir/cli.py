"""The command `weir`: one name for Weir's programs, and for commands of Python's own.

It becomes the program (exec), so that signals and exit codes are the program's own.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn, Optional, Sequence

from weir import programs
from weir.command_line import commands, completion
from weir.errors import WeirError
from weir.nearest import did_you_mean
from weir.version import __version__

__all__ = ["main"]

# Exit code for a wrong command line, as of the programs (docs/errors.md).
_BAD_INPUT = 2

# Each program, and what it does.
_PROGRAMS = {
    "launch": "starts a cluster: servers and trainers, here or on several hosts",
    "trainer": "one trainer, or a whole job in one process, or predictions",
    "pserver": "one parameter server",
    "transpile": "prints what the processes of a job run, and what it costs",
    "checkpoint": "lists, verifies, compares and exports checkpoints, reports on their tables",
    "convert": "parses data once, into example files",
    "doctor": "shows what this machine can do, and whether hosts reach each other",
    "generate_ctr": "makes a click log from a known model",
    "merge_traces": "merges traces of processes",
    "simulate": "tries settings of tables on a sample of ids",
    "slurm_job": "runs a job on the nodes that Slurm gives",
}

# Commands that write data: the module of weir.command_line with the function, and what it does.
_DATA_COMMANDS = {
    "parquet": ("parquet", "main", "writes Parquet files to standard output, for data.pipe of a job"),
    "cat": ("objects", "cat", "writes the bytes of files and objects (s3://, hdfs://, ...), for data.pipe"),
    "list": ("objects", "print_list", "lists files and objects that a pattern matches, for data.pipe_list"),
}

_USAGE = """weir train JOB [--servers=S] [--trainers=T] [--set path=value ...] [-- arguments of every trainer]
weir export JOB CHECKPOINT MODEL.onnx [flags]
weir export CHECKPOINT VALUES.safetensors [flags]
weir card CHECKPOINT [flags]
weir PROGRAM [arguments of the program]
weir completion bash|zsh|fish [NAME ...]

`weir train JOB ...` is `weir launch --job=JOB ...`. Every command and program explains its flags:
`weir launch --help`. `weir completion SHELL` prints a script that completes weir and weir-PROGRAM in that shell, and
programs called NAME: source <(weir completion bash)

"""


def _usage() -> str:
    data = {name: does for name, (_, _, does) in _DATA_COMMANDS.items()}
    groups = (("Commands", commands.COMMANDS), ("Programs", _PROGRAMS), ("Data from elsewhere", data))
    width = max(len(name) for _, known in groups for name in known)
    lists = []
    for head, known in groups:
        lists.append(f"{head}:\n" + "".join(f"  {name:{width}}  {does}\n" for name, does in known.items()))
    return _USAGE + "\n".join(lists)


def _train(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of launch for those of `weir train`.

    The job comes first: after a flag, a word may be its value.
    """
    if arguments and not arguments[0].startswith("-"):
        return [f"--job={arguments[0]}", *arguments[1:]]
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    # A flag has one dash or two (framework/process/command_line.h).
    if any(each.lstrip("-").partition("=")[0] in ("job", "help", "h") for each in own if each.startswith("-")):
        return list(arguments)
    raise WeirError("train: the job file comes first: weir train JOB [--servers=S] [--trainers=T] ...")


def _completion(arguments: Sequence[str]) -> str:
    """Returns the script for a shell."""
    if not arguments or arguments[0] not in completion.SHELLS:
        got = f", got '{arguments[0]}'" if arguments else ""
        raise WeirError(f"completion: expected a shell: bash, zsh or fish{got}")
    names = ["weir", *(f"weir-{name}" for name in _PROGRAMS), *arguments[1:]]
    return completion.script(arguments[0], names)


def _become(name: str, arguments: Sequence[str]) -> NoReturn:
    path = str(programs.find(name))
    # Python ignores these signals, and the program would inherit that.
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)
    sys.stdout.flush()
    os.execv(path, [path, *arguments])


def _do(command: str, arguments: Sequence[str]) -> int:
    from weir.command_line import standard_output

    module, function, does = _DATA_COMMANDS[command]
    if command != "parquet" and (not arguments or arguments[0] in ("--help", "-h", "-help")):
        print(f"weir {command} NAME...: {does}", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else _BAD_INPUT
    loaded = importlib.import_module(f"weir.command_line.{module}")
    return standard_output.run(command, getattr(loaded, function), arguments)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command with these arguments (default: those of the process). Returns unless a program runs."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print(_usage(), end="", file=sys.stderr)
        return _BAD_INPUT
    if arguments[0] in ("--help", "-h", "-help", "help"):
        print(_usage(), end="")
        return 0
    if arguments[0] in ("--version", "-version"):
        print(f"weir {__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    try:
        if command == "train":
            _become("launch", _train(rest))
        if command == "completion":
            print(_completion(rest), end="")
            return 0
        if command == "__complete":
            # Asked by those scripts. The words are behind "--".
            print(completion.answer(rest[1:], _PROGRAMS), end="")
            return 0
        if command in commands.COMMANDS:
            return commands.run(command, rest)
        if command in _PROGRAMS:
            _become(command, rest)
        if command in _DATA_COMMANDS:
            return _do(command, rest)
        known = ["train", *commands.COMMANDS, *_PROGRAMS, *_DATA_COMMANDS, "completion", "--help", "--version"]
        raise WeirError(f"unknown command '{command}'{did_you_mean(command, known)}; --help lists the commands")
    except WeirError as error:
        print(f"weir: {error}", file=sys.stderr)
        return _BAD_INPUT
    except OSError as error:
        print(f"weir: {command} does not start: {error.strerror} ({error.filename})", file=sys.stderr)
        return 1
