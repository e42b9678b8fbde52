"""Scores examples with a checkpoint."""

from __future__ import annotations

import csv
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

import numpy as np
from google.protobuf import text_format

from weir import child, programs
from weir.checkpoint import Checkpoint
from weir.checkpoint_job import with_model_of
from weir.csv_arrays import columns_of, write_csv
from weir.errors import JobError, RunError, WeirError
from weir.job_on_disk import JobOnDisk
from weir.protos import job_pb2
from weir.text_message import parse_text

if TYPE_CHECKING:
    import pandas

__all__ = ["predict"]

_PREDICTION = re.compile(r"prediction(_\d+)?$")
_LINES_KEPT = 200
_SECONDS_TO_END = 10
_LONGEST_FIELD = 2**31 - 1
# Stands for the temporary file with the inputs in messages.
_INPUTS = "inputs"
# Message of the program if the job is right, but Python could not read it and wrote no inputs.
_NO_INPUT = f"--input.files: {_INPUTS} is empty"


def predict(
    job: Any, checkpoint: Union[str, os.PathLike[str]], inputs: Any = None, carry: Optional[Sequence[str]] = None,
    overrides: Sequence[str] = (), *, allow_pipes: bool = False, checkpoint_job: bool = False,
) -> Union[np.ndarray, pandas.DataFrame]:
    """Scores examples with a checkpoint, in one process on all cores of this machine.

    A score is the prediction of the job's first loss: a probability, a number, or one probability for each class. The
    labels need not be there.

    Args:
        job: a weir.Job, the path of a job file, or the text of a job; the one that the checkpoint was trained with.
        checkpoint: directory of checkpoints, of which the newest is used, or of one step.
        inputs: what to score. A path or a pattern ("new/*.csv") names files of the job's reader. A pandas DataFrame, or
            a dict of lists or arrays, has the columns of a job with a csv reader: numbers, texts, ids, times as texts
            or datetimes. A value that is None or NaN is missing. A list is a list, with weights a dict or a list of
            pairs (value, weight); a text in such a column is the field as a file would have it. Other columns are
            ignored. None: data.eval of the job.
        carry: columns that the result has besides the scores. From files they are numbers if the job's csv reader says
            so, else the texts of the file. From arrays they are the columns that were given; variables of the job may
            be named, too.
        overrides: fields of the job that have another value: ["train.threads=1"].
        allow_pipes: runs the commands that the job names (data.pipe, data.pipe_list) to read files.
        checkpoint_job: takes the model from the job in the checkpoint, and only files, batches and the cluster from
            `job`, which may be None: then all is that of the job in the checkpoint, with relative paths from the
            current directory.

    Returns:
        float32 [n], or [n, classes], one for each example in order. NaN for a line that was skipped (data.bad_line:
        SKIP). With `carry` a DataFrame of the carried columns and `prediction`, or `prediction_0` and so on; it has the
        index of an input DataFrame.

    Raises:
        weir.RunError: the job, the checkpoint or a line of the data is wrong, or the job makes other scores than the
            model in the checkpoint. Of a line of arrays, the text says which row it is.
        weir.StoppedError: a signal from elsewhere has ended the program before it had scored all.
        ValueError: the arrays do not fit the job.
        ImportError: `carry` without pandas.
    """
    carried = _names(carry)
    child.arguments_of(overrides)  # refuses wrong ones
    if carried:
        _import_pandas()
    if checkpoint_job:
        # Overrides hold for `job`, so that they are in this one.
        job, overrides = with_model_of(Checkpoint(checkpoint), job, overrides), ()
    from_files = inputs is None or isinstance(inputs, (str, os.PathLike))
    with JobOnDisk(job) as file, tempfile.TemporaryDirectory(prefix="weir-predict-") as directory:
        columns = {} if from_files else columns_of(inputs)
        # Columns of a frame are carried here, so that they keep their types.
        by_program = [name for name in carried if name not in columns]
        output = Path(directory) / ("scores.csv" if by_program else "scores")
        # Servers of a cluster do not matter to the one process.
        arguments = [f"--job={file.path}", "--role=predict", f"--checkpoint={os.fspath(checkpoint)}",
                     f"--output={output}", "--set", "cluster={}"]
        arguments += child.arguments_of([*file.overrides, *overrides])
        arguments += [f"--carry={','.join(by_program)}"] if by_program else []
        arguments += ["--allow_pipes"] if allow_pipes else []
        config, unreadable = _config(job, file)
        temporary = None
        if not from_files:
            temporary = Path(directory) / "inputs.csv"
            arguments += [f"--input={temporary}", *_write(config, columns, overrides, temporary)]
        elif inputs is not None:
            arguments.append(f"--input={os.fspath(inputs)}")
        try:
            _score(arguments, file, temporary)
        except RunError as error:
            if config is not None or not str(error).startswith(_NO_INPUT):
                raise
            raise JobError(f"the job cannot be read by Python, which has to write the arrays: {unreadable}; write them "
                           "to a file and give its path") from None
        scores, texts = _read_csv(output) if by_program else (_read_text(output), {})
    rows = len(next(iter(columns.values()))) if columns else len(scores)
    if len(scores) != rows:
        raise WeirError(f"{len(scores)} scores for {rows} rows of the inputs")
    return _frame(config, inputs, columns, carried, texts, scores) if carried else scores


def _names(carry: Optional[Sequence[str]]) -> list[str]:
    if isinstance(carry, str):
        raise TypeError(f"carry is a list of names of columns, got the text {carry!r}")
    names = list(carry or ())
    for name in names:
        if "," in name:
            raise ValueError(f"carry: the name '{name}' contains a comma, which separates the names of --carry")
        if names.count(name) > 1:
            raise ValueError(f"carry: '{name}' is named twice")
        if _PREDICTION.match(name):
            raise ValueError(f"carry: '{name}' is a name of predictions in the result; rename the column")
    return names


def _import_pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("predict with carry= returns a pandas DataFrame (pip install pandas); without carry it "
                          "returns the scores alone, in the order of the inputs") from error
    return pandas


def _config(job: Any, file: JobOnDisk) -> tuple[Optional[job_pb2.JobConfig], str]:
    """Returns the message of a job; None if Python cannot read it, since the C++ program says better what is wrong."""
    if hasattr(job, "config"):
        return job.config, ""
    try:
        return parse_text(file.path.read_text(encoding="utf-8"), job_pb2.JobConfig()), ""
    except (text_format.ParseError, UnicodeDecodeError) as error:
        return None, str(error)


def _write(config: Optional[job_pb2.JobConfig], columns: dict[str, Sequence[Any]], overrides: Sequence[str],
           path: Path) -> list[str]:
    """Writes the arrays as a file for the job. Returns the arguments with which the program reads it."""
    if config is None:
        # The program says what is wrong with the job before it opens its input.
        path.touch()
        return []
    reader = config.data.WhichOneof("reader")
    if reader != "csv":
        raise ValueError(f"the reader of the job is {reader}, and arrays need a job with a csv reader: write the "
                         f"examples to a file as data.{reader} reads it, and give its path")
    for each in overrides:
        if re.match(r"\s*data\s*(\.csv\b.*)?=", each):
            raise ValueError(f"the override '{each}' changes data.csv, by which the arrays are written: change it in "
                             "the job")
    if config.data.partition:
        names = ", ".join(each.name for each in config.data.partition)
        raise ValueError(f"the job takes {names} from the names of files (data.partition), and arrays have none: write "
                         "the examples to files in such directories, and give their pattern")
    if not columns or not any(column.name in columns for column in config.data.csv.column):
        wanted = ", ".join(column.name for column in config.data.csv.column if column.type != job_pb2.Csv.Column.SKIP)
        raise ValueError(f"inputs have no column of the job, which reads {wanted}; they have "
                         f"{', '.join(columns) or 'none'}")
    reader_of_file, arguments = _plain_dialect(config.data.csv)
    write_csv(columns, reader_of_file, path)
    # The names of the columns are in the file also where the job's own files have none: labels may then be left out.
    arguments += ["--set", "data.csv.header=true"]
    # Commands of the job read other files than this one.
    for field in ("pipe_list", "pipe"):
        arguments += ["--set", f"data.{field}="] if getattr(config.data, field, "") else []
    return arguments


def _plain_dialect(reader: job_pb2.Csv) -> tuple[job_pb2.Csv, list[str]]:
    """Returns the reader that takes the file of write_csv, and the arguments that make it of the job's."""
    plain = job_pb2.Csv()
    plain.CopyFrom(reader)
    arguments: list[str] = []
    for field, text in (("quote", "'\"'"), ("skip_lines", "0"), ("skip_blank_lines", "false"), ("comment", "")):
        if plain.HasField(field):
            plain.ClearField(field)
            arguments += ["--set", f"data.csv.{field}={text}"]
    if len(plain.separator) > 1:
        plain.separator = ","
        arguments += ["--set", "data.csv.separator=,"]
    return plain, arguments


def _score(arguments: Sequence[str], file: JobOnDisk, temporary: Optional[Path]) -> None:
    """Runs the program."""
    process = child.start(programs.find("trainer"), arguments)
    try:
        out, err = process.communicate()
    except BaseException:  # Ctrl-C
        process.terminate()
        try:
            process.communicate(timeout=_SECONDS_TO_END)
        except BaseException:
            process.kill()
            process.communicate()
        raise
    code = child.exit_code_of(process)
    if code == 0:
        return
    out_lines, lines = _lines(out, file, temporary), _lines(err, file, temporary)
    notes = []
    first = str(child.error_of("trainer", code, lines, [])).split("\n")[0]
    notes.append(file.note(first))
    place = re.search(rf"(?:^|\W){_INPUTS}:(\d+): ", first)
    if place and int(place[1]) > 1:
        notes.append(f"Line {place[1]} is row {int(place[1]) - 2} of the inputs, counted from 0; line 1 has the names.")
    raise child.error_of("trainer", code, lines, [*out_lines, *lines][-_LINES_KEPT:], "\n".join(filter(None, notes)))


def _lines(output: bytes, file: JobOnDisk, temporary: Optional[Path]) -> list[str]:
    lines = [file.plain(line) for line in output.decode("utf-8", "replace").splitlines()]
    return lines if temporary is None else [line.replace(str(temporary), _INPUTS) for line in lines]


def _read_text(path: Path) -> np.ndarray:
    """Reads an output with predictions alone. Nine digits restore a float32, also by way of a double."""
    with open(path, encoding="ascii") as file:
        first = file.readline()
        rest = file.read()
    width = len(first.split())
    values = np.array([*first.split(), *rest.split()], dtype=np.float64).astype(np.float32)
    return values if width <= 1 else values.reshape(-1, width)


def _read_csv(path: Path) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Reads an output with carried columns. Returns the predictions, and the texts of each carried column."""
    # The module's limit is below the longest lists, and it is one for all.
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = csv.reader(file)
            names = next(rows)
            fields: list[Iterable[str]] = list(zip(*rows)) or [()] * len(names)
    finally:
        csv.field_size_limit(limit)
    # Carried columns come first, and none of them has the name of a prediction.
    width = sum(1 for name in names if _PREDICTION.match(name))
    values = np.array(fields[-width:], dtype=np.float64).astype(np.float32).T
    return values[:, 0] if width == 1 else values, {n: list(f) for n, f in zip(names[:-width], fields)}


def _frame(config: Optional[job_pb2.JobConfig], inputs: Any, columns: dict[str, Sequence[Any]], carried: list[str],
           texts: dict[str, list[str]], scores: np.ndarray) -> pandas.DataFrame:
    """Makes the result with carried columns: those of the inputs, then those that the program carried."""
    pd = _import_pandas()
    index = inputs.index if hasattr(inputs, "iloc") else pd.RangeIndex(len(scores))
    result = {}
    for name in carried:
        if name in columns:
            values: Any = columns[name]
            # Series in a dict may have an index each.
            result[name] = values.set_axis(index) if hasattr(values, "iloc") else pd.Series(list(values), index)
    for name, fields in texts.items():
        result[name] = _typed(config, name, pd.Series(fields, index, dtype=object), pd)
    if scores.ndim == 1:
        result["prediction"] = pd.Series(scores, index)
    else:
        result.update({f"prediction_{i}": pd.Series(scores[:, i], index) for i in range(scores.shape[1])})
    frame: pandas.DataFrame = pd.DataFrame(result, index)
    return frame


def _typed(config: Optional[job_pb2.JobConfig], name: str, fields: Any, pd: Any) -> Any:
    """Returns a carried column as numbers if the job's csv says so; missing values are missing."""
    column = None
    if config is not None and config.data.WhichOneof("reader") == "csv":
        column = next((each for each in config.data.csv.column if each.name == name), None)
    fields = fields.where(fields != "", None)
    if column is None or column.list or column.classes or column.learn_classes:
        return fields
    fields = fields.where(~fields.isin(list(column.missing)), None) if column.missing else fields
    if column.type == job_pb2.Csv.Column.FLOAT:
        # pandas.to_numeric of releases before 3 is off by a bit for some texts of 17 digits.
        comma = config is not None and config.data.csv.decimal_comma
        numbers = [float(text.replace(",", ".") if comma else text) if isinstance(text, str) else np.nan
                   for text in fields]
        return pd.Series(numbers, fields.index, dtype=np.float64)
    if column.type == job_pb2.Csv.Column.ID:
        # Behind a point there are zeros (whole_floats).
        return pd.Series([int(re.split("[.,]", text)[0]) if isinstance(text, str) else None for text in fields],
                         fields.index, dtype="Int64")
    return fields
