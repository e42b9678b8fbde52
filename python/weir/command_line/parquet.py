"""The command `weir parquet`: Parquet files as the columns format, or as text, on standard output (docs/parquet.md).

Needs pyarrow. It reads with one thread unless --threads says more: a trainer starts a command for each file that it
reads, beside threads of its own.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

from weir.columns import END, header
from weir.command_line import objects
from weir.command_line.standard_output import Output
from weir.errors import DamagedFileError, WeirError
from weir.nearest import did_you_mean

if TYPE_CHECKING:
    import pyarrow

__all__ = ["main"]

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# Oldest pyarrow that the tests passed with.
_OLDEST = 17
# Longer batches are not quicker, and the trainer holds one for each file that it reads at a time.
_BATCH_ROWS = 32768
# A column of texts with at most this many bytes for each value has short dictionaries.
_BYTES_OF_CODE = 2.0
# Row groups by which that is judged; all of a file of thousands would take seconds.
_GROUPS_LOOKED_AT = 8
# The shortest Parquet file: both marks, and the length of what it tells about itself.
_SHORTEST = 12
# Bytes, uncompressed, that are requested of a store at once: enough to hide the time of an answer.
_BYTES_AT_ONCE = 64 << 20


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Raises:
        weir.WeirError: the command line, a file or a column is wrong; DamagedFileError: a file is cut or damaged.
    """
    options = _options(arguments)
    pa = _import_pyarrow()
    pa.set_cpu_count(options.threads)
    output = Output()
    if options.format == "columns":
        _write_columns(options, output)
    else:
        _write_text(options, output)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="weir parquet", description="Writes Parquet files to standard output, for `data.pipe` of a job.",
        allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE_OR_URL", help="files with the same columns")
    parser.add_argument("--columns", help="names of the columns, in this order: a,b,c; default: all, as the first file "
                                          "has them")
    parser.add_argument("--format", choices=("columns", "csv", "tsv"), default="columns",
                        help="columns: the columns format, the quickest; csv: lines below a header; tsv: lines with "
                             "tabs and no header; default: columns")
    parser.add_argument("--list", default="|", metavar="CHARACTER",
                        help="csv and tsv: stands between the elements of a list; default: |")
    parser.add_argument("--batch_rows", type=_number(1 << 24), default=_BATCH_ROWS, metavar="N",
                        help=f"rows that are read and written at a time; default: {_BATCH_ROWS}")
    parser.add_argument("--threads", type=_number(1024), default=1, metavar="N",
                        help="threads that decode columns; default: 1")
    return parser.parse_args([each.replace("--batch-rows", "--batch_rows") for each in arguments])


def _number(most: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"takes a whole number from 1 to {most}, got '{text}'")
        return int(text)

    return parse


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise WeirError(f"Parquet needs the package pyarrow, which does not load ({error}): "
                        "pip install pyarrow") from None
    if int(pyarrow.__version__.partition(".")[0]) < _OLDEST:
        raise WeirError(f"Parquet needs pyarrow {_OLDEST} or newer, and {pyarrow.__version__} is installed: "
                        "pip install --upgrade pyarrow")
    return pyarrow


def _write_columns(options: argparse.Namespace, output: Output) -> None:
    from weir.command_line.arrow_columns import batch_parts

    for names, batch in _batches(options):
        if batch is None:
            output.write(header(names))
        else:
            for rows in _fitting(batch, batch_parts):
                output.write(*rows)
    output.write(END)


def _write_text(options: argparse.Namespace, output: Output) -> None:
    from weir.command_line import arrow_text

    separator = "," if options.format == "csv" else "\t"
    for names, batch in _batches(options):
        if batch is None:
            if options.format == "csv":
                output.write(arrow_text.header(names, separator))
        else:
            for text in _fitting(batch, lambda columns, _: arrow_text.lines(columns, names, separator, options.list)):
                output.write(text)


def _fitting(columns: list[pyarrow.Array], make: Any) -> Iterator[Any]:
    """Yields what `make` makes of a batch, or of halves of it where the whole is too large."""
    import pyarrow

    from weir.command_line.arrow_columns import TooLargeError

    rows = len(columns[0])
    try:
        made = make(columns, rows)
    except (TooLargeError, pyarrow.ArrowCapacityError, pyarrow.ArrowInvalid) as error:
        if rows == 1:
            raise WeirError(f"a row cannot be written: {error}") from None
        half = rows // 2
        for part in ([each[:half] for each in columns], [each[half:] for each in columns]):
            yield from _fitting(part, make)
        return
    yield made


def _batches(options: argparse.Namespace) -> Iterator[tuple[list[str], Optional[list[pyarrow.Array]]]]:
    """Yields the names of the columns with None, then with the columns of each batch."""
    names = _names(options.columns)
    begun = False
    for name in options.files:
        with _opened(name) as file, _damage(name):
            reader = _reader(name, file, names, options.format == "columns")
            names = names or list(reader.schema_arrow.names)
            _check(name, reader.schema_arrow, names)
            if not begun:
                begun = True
                yield names, None
            rows = 0
            for groups in _row_groups(reader.metadata, file.is_remote):
                for batch in reader.iter_batches(options.batch_rows, groups, names, options.threads > 1):
                    columns = [batch.column(each) for each in names]
                    rows += min(map(len, columns))
                    if batch.num_rows and min(map(len, columns)) == max(map(len, columns)):
                        yield names, columns
            # pyarrow loses rows of some damaged files without an error.
            if rows != reader.metadata.num_rows:
                raise DamagedFileError(f"{name} is damaged: it says that it has {reader.metadata.num_rows} rows, and "
                                       f"{rows} can be read")


def _names(columns: Optional[str]) -> list[str]:
    names = [] if columns is None else columns.split(",")
    for name in names:
        if not name or names.count(name) > 1:
            raise WeirError(f"--columns={columns}: " + (f"'{name}' is named twice" if name else "a name is empty"))
    return names


class _File:
    """A file that pyarrow reads.

    Attributes:
        source: for pyarrow.
        is_remote: whether reads are requests to another machine.
    """

    def __init__(self, source: Any, is_remote: bool):
        self.source = source
        self.is_remote = is_remote


@contextlib.contextmanager
def _opened(name: str) -> Iterator[_File]:
    path = objects.local_path(name)
    if path is not None:
        with objects.open_local(path) as file:
            import pyarrow

            # Reads without Python, from the file that was checked.
            with pyarrow.OSFile(f"/dev/fd/{file.fileno()}") as source:
                yield _File(source, is_remote=False)
        return
    try:
        # Columns are read at once and none twice.
        opened = objects.open_object(name, cache_type="none")
    except objects.NotInstalledError as error:
        opened = _open_with_arrow(name, error)
    with opened:
        yield _File(opened, is_remote=True)


def _open_with_arrow(url: str, missing: WeirError) -> Any:
    """Opens a URL by pyarrow alone, which reaches some stores without fsspec."""
    import pyarrow
    from pyarrow import fs

    try:
        file_system, path = fs.FileSystem.from_uri(url)
    except (pyarrow.ArrowException, ImportError):
        raise missing from None
    try:
        return file_system.open_input_file(path)
    except FileNotFoundError:
        raise WeirError(f"{url} is not there") from None


@contextlib.contextmanager
def _damage(name: str) -> Iterator[None]:
    """Turns errors of pyarrow about the bytes of a file into DamagedFileError."""
    import pyarrow

    try:
        yield
    except pyarrow.ArrowNotImplementedError as error:
        raise WeirError(f"{name} cannot be read by pyarrow {pyarrow.__version__}: {error}") from None
    except MemoryError:
        raise
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{name} is damaged: {error}") from None
    except OSError as error:
        if _is_of_system(error):
            raise
        raise DamagedFileError(f"{name} is damaged: {error}") from None


def _is_of_system(error: Exception) -> bool:
    """Whether an error is one of the system or of a store: pyarrow raises OSError for bytes that make no sense, too."""
    return isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError)


def _reader(name: str, file: _File, names: Sequence[str], with_dictionaries: bool) -> Any:
    """Opens a Parquet file, whose columns `names` are wanted (empty: all)."""
    import pyarrow
    from pyarrow import parquet

    try:
        opened = parquet.ParquetFile(file.source)
    except (pyarrow.ArrowException, OSError) as error:
        if _is_of_system(error):
            raise
        raise _not_parquet(name, file.source, error) from None
    metadata = opened.metadata
    # pyarrow reads lists of dictionaries from one row group at a time only.
    texts = {field.name for field in opened.schema_arrow if not field.type.num_fields}
    # Without buffer_size, with which pyarrow 17 damages its memory; a row group, compressed, is in memory instead.
    dictionaries = _dictionaries(metadata, texts.intersection(names or texts)) if with_dictionaries else []
    return parquet.ParquetFile(file.source, metadata=metadata, read_dictionary=dictionaries, pre_buffer=file.is_remote,
                               page_checksum_verification=True)


def _not_parquet(name: str, source: Any, error: Exception) -> Exception:
    """Returns the error for a file that pyarrow does not open as Parquet."""
    source.seek(0, 2)
    size = source.tell()
    source.seek(0)
    head = bytes(source.read(4))
    source.seek(max(0, size - 4))
    tail = bytes(source.read(4))
    if _ENCRYPTED in (head, tail):
        return WeirError(f"{name} is an encrypted Parquet file, which is not supported")
    if head != _MAGIC:
        return WeirError(f"{name} is not a Parquet file: it {'does not begin with PAR1' if size else 'is empty'}")
    if tail != _MAGIC or size < _SHORTEST:
        return DamagedFileError(f"{name} is cut: a Parquet file of {size} bytes does not end with PAR1")
    return DamagedFileError(f"{name} is damaged: {error}")


def _check(name: str, schema: Any, names: Sequence[str]) -> None:
    """Refuses a file that lacks a column, or has one that cannot be written."""
    from weir.command_line.arrow_columns import problem

    there = list(schema.names)
    for column in names:
        if column not in there:
            raise WeirError(f"{name} has no column '{column}'{did_you_mean(column, there)}; it has {', '.join(there)}")
        if there.count(column) > 1:
            raise WeirError(f"{name} has two columns '{column}'")
        wrong = problem(schema.field(column).type)
        if wrong:
            written = ",".join(field.name for field in schema if not problem(field.type))
            raise WeirError(f"{name}: column '{column}' is {wrong}; a column has numbers, texts, times or lists of "
                            f"these. --columns={written} leaves such columns out")


def _dictionaries(metadata: Any, names: set[str]) -> list[str]:
    """Returns those of some columns that are quicker as dictionaries: of texts, with few of them in each row group."""
    groups = [metadata.row_group(group) for group in range(min(metadata.num_row_groups, _GROUPS_LOOKED_AT))]
    found = []
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        if column.path in names and column.physical_type == "BYTE_ARRAY":
            chunks = [group.column(at) for group in groups]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            if size <= _BYTES_OF_CODE * sum(chunk.num_values for chunk in chunks):
                found.append(column.path)
    return found


def _row_groups(metadata: Any, is_remote: bool) -> Iterator[list[int]]:
    """Yields row groups that are read together.

    Of a remote file all bytes of them are requested, and held, at once.
    """
    groups: list[int] = []
    size = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        size += metadata.row_group(group).total_byte_size
        if is_remote and size >= _BYTES_AT_ONCE:
            yield groups
            groups, size = [], 0
    if groups:
        yield groups
