"""The manual of the job file: pages made of the comments in proto/job.proto and of the messages that it reaches."""

from __future__ import annotations

import html
import pathlib
import re
import subprocess
import tempfile
from typing import Callable, Iterable, Optional, Union

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from site_builder.page import Heading, Page, Section, anchor_link, link

_ROOT_MESSAGE = "JobConfig"
_PACKAGE = "weir.v1"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    _Field.TYPE_DOUBLE: "double", _Field.TYPE_FLOAT: "float", _Field.TYPE_INT64: "int64", _Field.TYPE_UINT64: "uint64",
    _Field.TYPE_INT32: "int32", _Field.TYPE_UINT32: "uint32", _Field.TYPE_BOOL: "bool", _Field.TYPE_STRING: "string",
    _Field.TYPE_BYTES: "bytes",
}
# Resolves the name of a document, and the section that is named behind it, from a page; None if it is no document.
ResolveMention = Callable[[str, str, str, int], Optional[str]]
_MENTION = re.compile(r'\b((?:docs|examples)/[a-z_/]+\.md|proto/[a-z_]+\.proto)(?:(,?\s+\(?)"([^"]+)")?')


_Described = Union[descriptor_pb2.DescriptorProto, descriptor_pb2.EnumDescriptorProto]
# (comment, its line, title of the part of the file that begins there) by path of descriptor.proto.
_Comments = dict[tuple[int, ...], tuple[str, int, str]]


class _Item:
    """A message or an enum, with its comments."""

    def __init__(self, file: str, name: str, proto: _Described, outer: Optional["_Item"], comments: _Comments,
                 path: tuple[int, ...]) -> None:
        self.file, self.name, self.proto, self.outer = file, name, proto, outer
        self.comment, self.line, self.part = comments.get(path, ("", 1, ""))
        self.is_enum = isinstance(proto, descriptor_pb2.EnumDescriptorProto)
        members = proto.value if isinstance(proto, descriptor_pb2.EnumDescriptorProto) else proto.field
        self.members = [(each, *comments.get((*path, 2, index), ("", 1, ""))) for index, each in enumerate(members)]
        self.oneofs = [] if isinstance(proto, descriptor_pb2.EnumDescriptorProto) else [
            (each.name, comments.get((*path, 8, index), ("", 1, ""))[0]) for index, each in enumerate(proto.oneof_decl)]


def _descriptors(root: pathlib.Path) -> list[descriptor_pb2.FileDescriptorProto]:
    with tempfile.NamedTemporaryFile() as made:
        done = subprocess.run(
            ["protoc", f"--proto_path={root}", "--include_imports", "--include_source_info",
             f"--descriptor_set_out={made.name}", str(root / "proto/job.proto")], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(made.name).read_bytes())
    return list(files.file)


def _comments(file: descriptor_pb2.FileDescriptorProto) -> _Comments:
    """Returns the comments of a file."""
    found = {}
    for place in file.source_code_info.location:
        part = ""
        for each in place.leading_detached_comments:
            title = re.match(r"\s*-{20,}\s*(.+?)\s*$", each)
            part = title[1] if title else part
        text = re.sub(r"^ ", "", place.leading_comments, flags=re.M)
        begin = place.span[0] + 1 - place.leading_comments.count("\n")
        if text or part or tuple(place.path) not in found:
            found[tuple(place.path)] = (text, begin, part)
    return found


def _head(file: descriptor_pb2.FileDescriptorProto) -> tuple[str, int]:
    """Returns the comment at the head of a file, which is before the syntax statement, and its line."""
    for place in file.source_code_info.location:
        if list(place.path) == [12]:
            text = "\n".join([*place.leading_detached_comments, place.leading_comments])
            return re.sub(r"^ ", "", text, flags=re.M), 1
    return "", 1


class Reference:
    """All reachable messages, and their pages."""

    def __init__(self, root: pathlib.Path) -> None:
        self._items: dict[str, _Item] = {}
        self._heads: dict[str, tuple[str, int]] = {}
        files = _descriptors(root)
        # Options of fields are extensions, which this process knows from the files alone.
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
        self._agreements = pool.FindExtensionByName(f"{_PACKAGE}.agreement")
        self._options = message_factory.MessageFactory(pool).GetPrototype(
            pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
        for file in files:
            if file.package != _PACKAGE:
                continue
            comments = _comments(file)
            self._heads[file.name] = _head(file)
            for index, message in enumerate(file.message_type):
                self._add(file.name, f"{_PACKAGE}.{message.name}", message, None, comments, (4, index))
            for index, enum in enumerate(file.enum_type):
                name = f"{_PACKAGE}.{enum.name}"
                self._items[name] = _Item(file.name, name, enum, None, comments, (5, index))
        # The shortest path from the job to a message: data.ids.
        self._paths = self._reached()
        reached = self._with_outer(self._paths)
        self._items = {name: each for name, each in self._items.items() if name in reached}
        names = [each for each in self._heads if any(item.file == each for item in self._items.values())]
        # The root first: the others are what it names.
        names.sort(key=lambda each: (each != "proto/job.proto", each))
        self.pages = {each: self._page(each) for each in names}

    def _add(self, file: str, name: str, message: descriptor_pb2.DescriptorProto, outer: Optional[_Item],
             comments: _Comments, path: tuple[int, ...]) -> None:
        item = self._items[name] = _Item(file, name, message, outer, comments, path)
        for index, nested in enumerate(message.nested_type):
            self._add(file, f"{name}.{nested.name}", nested, item, comments, (*path, 3, index))
        for index, enum in enumerate(message.enum_type):
            self._items[f"{name}.{enum.name}"] = _Item(
                file, f"{name}.{enum.name}", enum, item, comments, (*path, 4, index))

    def _reached(self) -> dict[str, str]:
        reached: dict[str, str] = {}
        todo = [(f"{_PACKAGE}.{_ROOT_MESSAGE}", "")]
        # Breadth first: the list grows at its end.
        for name, path in todo:
            if name in reached or name not in self._items:
                continue
            reached[name] = path
            if not self._items[name].is_enum:
                todo += [(each[0].type_name[1:], f"{path}.{each[0].name}" if path else each[0].name)
                         for each in self._items[name].members if each[0].type_name]
        return reached

    def _with_outer(self, names: Iterable[str]) -> set[str]:
        """Adds the messages around each."""
        reached = set(names)
        for name in names:
            outer = self._items[name].outer
            while outer is not None:
                reached.add(outer.name)
                outer = outer.outer
        return reached

    @staticmethod
    def _short(name: str) -> str:
        return name[len(_PACKAGE) + 1:]

    def _target(self, name: str) -> str:
        return f"{self.pages[self._items[name].file].path}#{self._short(name)}"

    def _page(self, file: str) -> Page:
        name = pathlib.PurePosixPath(file).stem
        title = "The job file" if name == "job" else f"Job file: {name}.proto"
        page = Page(file, f"reference/{name}.html", title, "Reference")
        part = ""
        for item in self._of(file):
            if item.part:
                part = item.part
                page.headings.append(Heading(2, part.capitalize(), f"part-{part.replace(' ', '-')}", item.line))
            level = 3 if any(each.level == 2 for each in page.headings) else 2
            page.headings.append(Heading(level, self._short(item.name), self._short(item.name), item.line))
            short = self._short(item.name)
            page.sections.append(Section(short, short, " ".join(item.comment.split())))
            for member, comment, _, _ in item.members:
                page.anchors.add(f"{short}.{member.name}")
                text = " ".join(comment.split())
                if not item.is_enum:
                    text = f"{self._path(item, member.name)}: {text}"
                page.sections.append(Section(f"{short}.{member.name}", f"{short}.{member.name}", text))
        return page

    def _path(self, item: _Item, field: str) -> str:
        """Returns the path of a field from the job on, as --set takes it."""
        path = self._paths.get(item.name)
        return f"{path}.{field}" if path else field

    def _of(self, file: str) -> list[_Item]:
        return [each for each in self._items.values() if each.file == file]

    def field(self, path: str) -> Optional[str]:
        """Returns the target (page#anchor) of a field that is named from the job on: "train.epochs", "table.width"."""
        name, anchor = f"{_PACKAGE}.{_ROOT_MESSAGE}", ""
        for part in path.split("."):
            item = self._items.get(name)
            if item is None or item.is_enum:
                return None
            found = [each[0] for each in item.members if each[0].name == re.sub(r"\[\d+\]$", "", part)]
            if not found:
                return None
            anchor = f"{self.pages[item.file].path}#{self._short(name)}.{found[0].name}"
            name = found[0].type_name[1:]
        return anchor

    # ------------------------------------------------------------------------------------------------------------ HTML

    def render(self, mention: ResolveMention) -> None:
        """Fills the bodies of the pages."""
        for file, page in self.pages.items():
            comment, line = self._heads[file]
            parts = [f"<h1>{html.escape(page.title)}</h1>\n",
                     f"<p>Made of the comments in {link(f'source/{file}.html', page.path, file)}.</p>\n",
                     self._text(comment, page, line, mention)]
            titles = iter(page.headings)
            for item in self._of(file):
                if item.part:
                    part = next(titles)
                    parts.append(f'<h2 id="{part.anchor}">{html.escape(part.text)}</h2>\n')
                parts.append(self._item(item, next(titles), page, mention))
            page.body = "".join(parts)

    def _item(self, item: _Item, heading: Heading, page: Page, mention: ResolveMention) -> str:
        short = self._short(item.name)
        kind = "enum" if item.is_enum else "message"
        parts = [f'<h{heading.level} id="{heading.anchor}"><small>{kind}</small> {short}{anchor_link(heading.anchor)}'
                 f"</h{heading.level}>\n",
                 self._users(item, page), self._text(item.comment, page, item.line, mention)]
        if item.members:
            parts.append('<dl class="fields">\n')
            oneof = -1
            for member, comment, line, _ in item.members:
                if isinstance(member, descriptor_pb2.FieldDescriptorProto):
                    now = member.oneof_index if member.HasField("oneof_index") else -1
                    if now != oneof and now >= 0:
                        name, about = item.oneofs[now]
                        parts.append(f'<dt class="oneof">One of these (<code>{name}</code>):</dt>'
                                     f"<dd>{self._text(about, page, line, mention)}</dd>\n")
                    if now != oneof and now < 0:
                        parts.append('<dt class="oneof">And:</dt><dd></dd>\n')
                    oneof = now
                anchor = f"{short}.{member.name}"
                about = self._field(member, page) if isinstance(member, descriptor_pb2.FieldDescriptorProto) else ""
                parts.append(f'<dt id="{anchor}"><a href="#{anchor}"><code>{member.name}</code></a> {about}</dt>'
                             f"<dd>{self._text(comment, page, line, mention)}</dd>\n")
            parts.append("</dl>\n")
        return "".join(parts)

    def _field(self, field: _Field, page: Page) -> str:
        """Returns type, default and agreement of a field."""
        if field.type_name:
            name = field.type_name[1:]
            shown = f"<code>{self._short(name) if name in self._items else name}</code>"
            type_ = link(self._target(name), page.path, shown) if name in self._items else shown
        else:
            type_ = f"<code>{_SCALARS[field.type]}</code>"
        if field.label == _Field.LABEL_REPEATED:
            type_ = f"repeated {type_}"
        notes = [type_]
        if field.HasField("default_value"):
            quote = '"' if field.type == _Field.TYPE_STRING else ""
            notes.append(f"default <code>{html.escape(quote + field.default_value + quote)}</code>")
        agreement = self._agreement(field)
        if agreement:
            notes.append(agreement)
        return f'<span class="type">{", ".join(notes)}</span>'

    def _agreement(self, field: _Field) -> str:
        options = self._options.FromString(field.options.SerializeToString())
        return {"FREE": "may differ between processes",
                "SAME_IF_REPRODUCIBLE": "may differ between processes if the job need not be reproducible",
                }.get(self._agreements.enum_type.values_by_number[options.Extensions[self._agreements]].name, "")

    def _users(self, item: _Item, page: Page) -> str:
        """Returns the fields that have the type, as a line."""
        users = []
        for other in self._items.values():
            if other.is_enum:
                continue
            for member in other.members:
                if member[0].type_name[1:] == item.name:
                    short = f"{self._short(other.name)}.{member[0].name}"
                    users.append(link(f"{self.pages[other.file].path}#{short}", page.path, f"<code>{short}</code>"))
        if not users:
            return ""
        path = self._paths.get(item.name, "")
        shown = f"<code>{path}</code> in a job. " if path and len(users) == 1 and not item.is_enum else ""
        return f'<p class="users">{shown}Used by {", ".join(users)}</p>\n'

    def _text(self, comment: str, page: Page, line: int, mention: ResolveMention) -> str:
        """Returns a comment as HTML: paragraphs, indented lines as they are, backquotes as code, documents as links."""
        parts = []
        for block in re.split(r"\n\s*\n", comment.strip("\n")):
            if not block.strip():
                continue
            if all(each.startswith("  ") for each in block.split("\n")):
                parts.append(f'<pre class="code"><code>{html.escape(block, quote=False)}</code></pre>\n')
                continue
            parts.append(f"<p>{self._inline(block, page, line, mention)}</p>\n")
        return "".join(parts)

    def _inline(self, block: str, page: Page, line: int, mention: ResolveMention) -> str:
        text = " ".join(block.split())
        done, at = [], 0
        for found in _MENTION.finditer(text):
            target = mention(found[1], found[3] or "", page.path, line)
            if target is None:
                continue
            done += [self._code(text[at:found.start()]), f'<a href="{html.escape(target)}">{html.escape(found[1])}</a>']
            at = found.end(1)
        return "".join(done) + self._code(text[at:])

    @staticmethod
    def _code(text: str) -> str:
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
