"""Text messages of protobuf as trees that can be drawn, cut and kept as JSON.

A message is a list of fields, and a field is [name, value]: the value is a message, or the text of a scalar as it is
written in the file ("3", "true", "ALL", '"cat"').
"""

from __future__ import annotations


def quoted(text):
    """The text of a string field. Names and paths of jobs here need no escapes."""
    return '"%s"' % text


def scalar(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def message(*fields, **more):
    """A message of (name, value) pairs and keywords. A list of values is a repeated field; None leaves a field out."""
    made = []
    for name, value in list(fields) + list(more.items()):
        if value is None:
            continue
        if isinstance(value, tuple):
            made += [[name, each if isinstance(each, list) else scalar(each)] for each in value]
        else:
            made.append([name, value if isinstance(value, list) else scalar(value)])
    return made


def text(fields, indent=0):
    """The message as a file has it."""
    lines = []
    for name, value in fields:
        blanks = "  " * indent
        if isinstance(value, list):
            if not value:
                lines.append("%s%s {}" % (blanks, name))
            elif len(inline(value)) + len(blanks) + len(name) < 100:
                lines.append("%s%s { %s }" % (blanks, name, inline(value)))
            else:
                lines += ["%s%s {" % (blanks, name), text(value, indent + 1).rstrip("\n"), blanks + "}"]
        else:
            lines.append("%s%s: %s" % (blanks, name, value))
    return "".join(line + "\n" for line in lines)


def inline(fields):
    """The message in one line, as --set takes it."""
    words = []
    for name, value in fields:
        words.append("%s { %s }" % (name, inline(value)) if isinstance(value, list) else "%s: %s" % (name, value))
    return " ".join(words)


def get(fields, path):
    """The first value at "train.lanes"; None: there is none."""
    for name in path.split("."):
        fields = next((value for key, value in fields if key == name), None)
        if fields is None:
            return None
    return fields


def put(fields, path, value):
    """Sets a field; makes the messages on the way."""
    names = path.split(".")
    for name in names[:-1]:
        below = next((v for key, v in fields if key == name), None)
        if below is None:
            below = []
            fields.append([name, below])
        fields = below
    for field in fields:
        if field[0] == names[-1]:
            field[1] = value if isinstance(value, list) else scalar(value)
            return
    fields.append([names[-1], value if isinstance(value, list) else scalar(value)])


def integer(fields, path, default=0):
    value = get(fields, path)
    return default if value is None else int(value)


def walk(fields, path=()):
    """Yields the place of every field, as indices, outer ones first."""
    for i, (_, value) in enumerate(fields):
        yield path + (i,)
        if isinstance(value, list):
            yield from walk(value, path + (i,))


def without(fields, path):
    """A copy without the field at the place."""
    if len(path) == 1:
        return [f for i, f in enumerate(fields) if i != path[0]]
    return [[f[0], without(f[1], path[1:])] if i == path[0] else f for i, f in enumerate(fields)]


def renamed(fields, old, new):
    """A copy in which the string `old` is `new`, wherever it is a whole value."""
    return [
        [name, renamed(value, old, new) if isinstance(value, list) else (new if value == old else value)]
        for name, value in fields
    ]


def without_ending(fields, ending):
    """A copy in which texts that end so do not."""
    return [
        [n, without_ending(v, ending) if isinstance(v, list) else v[: -len(ending)] + '"' if v.endswith(ending) else v]
        for n, v in fields
    ]
