"""Sets fields of protobuf messages from Python values and from text, with errors that name the field.

The constructors of protobuf accept the same values. Their errors say neither which field of a nested value is wrong nor
which name comes near.
"""

from __future__ import annotations

import operator
import os
import re
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, cast

from google.protobuf import any_pb2, descriptor_pool, text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from weir.errors import JobError
from weir.nearest import did_you_mean
from weir.text_message import parse_text

__all__ = ["assign", "assign_path", "assign_text", "fill", "is_repeated"]

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_REALS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def is_repeated(field: FieldDescriptor) -> bool:
    """Returns whether a field holds a list. Newer releases of protobuf warn about `label`, older have nothing else."""
    repeated = getattr(field, "is_repeated", None)
    return bool(getattr(field, "label") == FieldDescriptor.LABEL_REPEATED if repeated is None else repeated)


def _is_message(field: FieldDescriptor) -> bool:
    return bool(field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str, text: str) -> JobError:
    return JobError(f"{path}: {text}" if path else text)


def _shown(value: object) -> str:
    """Returns a value and its type, for a message: "'three' (str)"."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _find(message: Message, name: str, path: str) -> FieldDescriptor:
    type_ = message.DESCRIPTOR
    if name not in type_.fields_by_name:
        raise _at(path, f"unknown field '{name}'{did_you_mean(name, [field.name for field in type_.fields])}")
    field: Any = type_.fields_by_name[name]  # Its class depends on how protobuf was built.
    return cast(FieldDescriptor, field)


def _enum(field: FieldDescriptor) -> EnumDescriptor:
    assert field.enum_type is not None
    return field.enum_type


def _enum_names(field: FieldDescriptor) -> list[str]:
    return [value.name for value in _enum(field).values]


# -------------------------------------------------------------------------------------------------- from Python values


def _expected(field: FieldDescriptor) -> str:
    """Returns what a field takes in Python, with its article."""
    if field.cpp_type in _INTEGERS:
        return "an integer"
    if field.cpp_type in _REALS:
        return "a number"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "True or False"
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return "one of " + ", ".join(_enum_names(field))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "bytes" if field.type == FieldDescriptor.TYPE_BYTES else "a string"
    assert field.message_type is not None
    name = field.message_type.full_name
    return "any message" if name == "google.protobuf.Any" else f"a dict or a {name}"


def _wrong(field: FieldDescriptor, value: object, path: str, expected: str = "") -> JobError:
    return JobError(f"{path} takes {expected or _expected(field)}, got {_shown(value)}")


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or type(value).__module__ == "numpy" and type(value).__name__ in ("bool_", "bool")


def _enum_number(field: FieldDescriptor, value: object, path: str) -> int:
    type_ = _enum(field)
    if isinstance(value, str):
        if value not in type_.values_by_name:
            raise JobError(f"{path}: '{value}' is no value of '{field.name}'{did_you_mean(value, _enum_names(field))}")
        return int(type_.values_by_name[value].number)
    if _is_bool(value):
        # Settings such as distribute.merge_hosts have values that are named true and false.
        named = type_.values_by_name.get("true" if value else "false")
        if named is not None:
            return int(named.number)
    elif isinstance(value, int) and value in type_.values_by_number:
        return value
    raise _wrong(field, value, path)


def _scalar(field: FieldDescriptor, value: Any, path: str) -> Any:
    """Returns the value as protobuf takes it."""
    kind = field.cpp_type
    if kind in _INTEGERS:
        if _is_bool(value) or not hasattr(value, "__index__"):
            raise _wrong(field, value, path)
        number = operator.index(value)
        low, high = _INTEGERS[kind]
        if not low <= number <= high:
            raise _wrong(field, value, path, f"an integer from {low} to {high}")
        return number
    if kind in _REALS:
        if _is_bool(value) or isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            raise _wrong(field, value, path)
        return float(value)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        if not _is_bool(value):
            raise _wrong(field, value, path)
        return bool(value)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return _enum_number(field, value, path)
    if field.type == FieldDescriptor.TYPE_BYTES:
        if not isinstance(value, bytes):
            raise _wrong(field, value, path)
        return value
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise _wrong(field, value, path)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _wrong(field, value, path, "text that UTF-8 can hold") from None
    return text


def _fill_or_copy(message: Message, field: FieldDescriptor, value: object, path: str) -> None:
    """Sets a message that is a field, or an element of one, from a mapping or a message."""
    is_any = message.DESCRIPTOR.full_name == "google.protobuf.Any"
    if isinstance(value, Message):
        if value.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name:
            message.CopyFrom(value)
        elif is_any:
            assert isinstance(message, any_pb2.Any)
            message.Pack(value, deterministic=True)
        else:
            raise JobError(f"{path} takes {_expected(field)}, got a {value.DESCRIPTOR.full_name}")
    elif isinstance(value, Mapping) and not is_any:
        message.SetInParent()
        fill(message, value, path)
    else:
        raise _wrong(field, value, path)


def _elements(field: FieldDescriptor, value: Any, path: str) -> Iterable[Any]:
    """Returns the elements for a repeated field. One value stands for a list of one, as in a job file."""
    if isinstance(value, (str, bytes, os.PathLike, Mapping, Message)) or not hasattr(value, "__iter__"):
        return [value]
    if isinstance(value, (set, frozenset)):
        raise _wrong(field, value, path, "a list, whose order counts")
    return list(value)


def assign(message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
    """Replaces a field by a Python value; None clears it. `path` is that of the field, for errors.

    Raises:
        JobError: the value is not of the field's type. The message may then be changed in part.
    """
    message.ClearField(field.name)
    if value is None:
        return
    if not is_repeated(field):
        if _is_message(field):
            _fill_or_copy(getattr(message, field.name), field, value, path)
        else:
            setattr(message, field.name, _scalar(field, value, path))
        return
    target = getattr(message, field.name)
    for index, element in enumerate(_elements(field, value, path)):
        at = f"{path}[{index}]"
        if _is_message(field):
            _fill_or_copy(target.add(), field, element, at)
        else:
            target.append(_scalar(field, element, at))


def fill(message: Message, values: Mapping[str, Any], path: str = "") -> None:
    """Sets the fields of a message by their names. `path` is that of the message, for errors.

    A message takes a dict or a message, a repeated field a list, an enum the name of its value. A field whose value is
    None stays as it is.

    Raises:
        JobError: an unknown name, a value of a wrong type, or two members of one oneof.
    """
    members: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise _at(path, f"names of fields are strings, got {_shown(name)}")
        field = _find(message, name, path)
        if value is None:
            continue
        oneof = field.containing_oneof
        if oneof is not None:
            other = members.setdefault(oneof.name, name)
            if other != name:
                raise _at(path, f"'{name}' excludes '{other}'; only one of them can be set")
        assign(message, field, value, _join(path, name))


# --------------------------------------------------------------------------------------------- paths, as --set has them


class _Step(NamedTuple):
    """One name of a path, and its index where it has one."""

    name: str
    element: Optional[int]


def _split(path: str, place: str) -> list[_Step]:
    steps = []
    for part in path.split("."):
        found = re.fullmatch(r"([^\[]*)(?:\[(\d+)\])?", part)
        if found is None:
            raise JobError(f"{place}: expected 'name[index]', got '{part}'")
        if not found[1]:
            raise JobError(f"{place}: expected 'path.to.field=value'")
        steps.append(_Step(found[1], None if found[2] is None else int(found[2])))
    return steps


def _find_step(message: Message, step: _Step, place: str) -> FieldDescriptor:
    field = _find(message, step.name, place)
    if step.element is None:
        return field
    if not is_repeated(field):
        raise JobError(f"{place}: '{step.name}' is not repeated, it takes no index")
    count = len(getattr(message, step.name))
    if step.element >= count:
        way_out = "" if _is_message(field) else f"; '{step.name}=[a, b]' sets the whole list"
        raise JobError(f"{place}: '{step.name}' has {count} entries, there is no index {step.element}{way_out}")
    return field


def _inside(any_: any_pb2.Any, place: str) -> Message:
    """Returns the message inside an Any."""
    name = any_.type_url.rpartition("/")[2]
    try:
        type_ = descriptor_pool.Default().FindMessageTypeByName(name)
        inner: Message = _class_of(type_)()
        inner.ParseFromString(any_.value)
    except Exception:  # The releases of protobuf raise different types for an unknown name and for damaged bytes.
        raise JobError(f"{place}: no message type '{name}' is known; import its module with generated messages first") \
            from None
    return inner


def _class_of(type_: Descriptor) -> Any:
    from google.protobuf import message_factory

    newer = getattr(message_factory, "GetMessageClass", None)
    return newer(type_) if newer is not None else getattr(message_factory.MessageFactory(), "GetPrototype")(type_)


def _set_at(message: Message, steps: Sequence[_Step], place: str, value: Any, is_text: bool) -> None:
    step = steps[0]
    if isinstance(message, any_pb2.Any) and step.name not in message.DESCRIPTOR.fields_by_name:
        inner = _inside(message, place)
        _set_at(inner, steps, place, value, is_text)
        message.Pack(inner, deterministic=True)
        return
    field = _find_step(message, step, place)
    if len(steps) == 1:
        if is_text:
            assign_text(message, field, step.element, value, place)
        elif step.element is None:
            assign(message, field, value, place)
        elif _is_message(field):
            element = getattr(message, field.name)[step.element]
            element.Clear()
            _fill_or_copy(element, field, value, place)
        else:
            getattr(message, field.name)[step.element] = _scalar(field, value, place)
        return
    if not _is_message(field):
        raise JobError(f"{place}: '{field.name}' has no fields of its own")
    if is_repeated(field) and step.element is None:
        raise JobError(f"{place}: '{field.name}' is repeated, write '{field.name}[0].{steps[1].name}'")
    child = getattr(message, field.name)
    if step.element is not None:
        child = child[step.element]
    child.SetInParent()
    _set_at(child, steps[1:], place, value, is_text)


def assign_path(message: Message, path: str, value: Any, *, is_text: bool = False) -> None:
    """Sets the field at "train.epochs" or "table[0].width" to a Python value, or to text as --set takes it.

    Raises:
        JobError: the path or the value is wrong. The message is then as it was.
    """
    place = f"--set {path}" if is_text else path
    steps = _split(path, place)
    changed = type(message)()
    changed.CopyFrom(message)
    _set_at(changed, steps, place, value, is_text)
    message.CopyFrom(changed)


# ----------------------------------------------------------------------------------------------------------- from text

_QUOTES = ('"', "'", "[")


def assign_text(message: Message, field: FieldDescriptor, index: Optional[int], text: str, place: str) -> None:
    """Replaces a field, or an element of it, by a literal of the text format. A string may come without quotes."""
    repeated = is_repeated(field)
    is_string = field.cpp_type == FieldDescriptor.CPPTYPE_STRING
    if is_string and not text.startswith(_QUOTES):
        value: Any = text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    else:
        value = _parsed(message, field, text, place)
        if repeated:
            value = list(value)
            if index is not None:
                if len(value) != 1:
                    raise JobError(f"{place}: '{field.name}[{index}]' takes one value, got '{text}'")
                value = value[0]
    if index is None:
        assign(message, field, value, place)
    elif _is_message(field):
        getattr(message, field.name)[index].CopyFrom(value)
    else:
        getattr(message, field.name)[index] = value


def _parsed(message: Message, field: FieldDescriptor, text: str, place: str) -> Any:
    """Returns the value of a field that holds nothing but the literal."""
    parsed = type(message)()
    try:
        # Both are the text format's own; a colon before a brace is allowed.
        parse_text(f"{field.name}: {text}", parsed)
    except text_format.ParseError as error:
        raise _text_error(field, text, str(error), place) from None
    if [set_field.name for set_field, _ in parsed.ListFields()] not in ([field.name], []):
        raise JobError(f"{place}: expected the end of the value, got '{text}'")
    return getattr(parsed, field.name)


def _text_error(field: FieldDescriptor, text: str, error: str, place: str) -> JobError:
    if _is_message(field):
        if not text.startswith(("{", "<", "[")):
            return JobError(f"{place}: '{field.name}' takes a message in braces, got '{text}'")
        return JobError(f"{place}: {re.sub(r'^[0-9]+:[0-9]+ : ', '', error)}")
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and re.fullmatch(r"[A-Za-z_]\w*", text):
        return JobError(f"{place}: '{text}' is no value of '{field.name}'{did_you_mean(text, _enum_names(field))}")
    expected = {
        FieldDescriptor.CPPTYPE_BOOL: "true or false",
        FieldDescriptor.CPPTYPE_STRING: "a string in quotes",
    }.get(field.cpp_type, _expected(field))
    if field.cpp_type in _INTEGERS and re.fullmatch(r"-?\d+", text):
        expected = "an integer from {} to {}".format(*_INTEGERS[field.cpp_type])
    return JobError(f"{place}: '{field.name}' takes {expected}, got '{text}'")
