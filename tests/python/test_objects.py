"""`weir list` and `weir cat`: local files, and objects of stores that fsspec reaches, S3 by a server of moto."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from columns_format import decode

import weir
from weir.command_line import objects
from weir.errors import WeirError

PACKAGE = Path(weir.__file__).resolve().parent.parent
MISSING = [name for name in ("fsspec", "s3fs", "boto3", "moto", "flask") if importlib.util.find_spec(name) is None]


def command(*arguments, env=None):
    """Runs `weir` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "weir", *map(os.fspath, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        timeout=60, env={**os.environ, "PYTHONPATH": str(PACKAGE), **(env or {})})


def test_list_has_regular_files_in_the_order_of_their_names(tmp_path):
    for name, size in (("b.csv", 3), ("a.csv", 0), ("é.csv", 5), ("a.tsv", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "directory.csv").mkdir()
    done = command("list", tmp_path / "*.csv")
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert [line[:2] for line in lines] == [[f"{tmp_path}/{name}", size] for name, size in
                                            (("a.csv", "0"), ("b.csv", "3"), ("é.csv", "5"))]
    assert lines[1][2] == str((tmp_path / "b.csv").stat().st_mtime_ns)


def test_a_pattern_may_go_into_directories_and_may_match_nothing(tmp_path):
    (tmp_path / "x/y").mkdir(parents=True)
    (tmp_path / "x/y/a.csv").touch()
    assert [each.name for each in objects.list_files(f"{tmp_path}/**/*.csv")] == [f"{tmp_path}/x/y/a.csv"]
    assert [each.name for each in objects.list_files(f"file://{tmp_path}/x/*/a.csv")] == [f"{tmp_path}/x/y/a.csv"]
    done = command("list", tmp_path / "*.tsv")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_name_that_a_list_cannot_hold_is_refused(tmp_path):
    (tmp_path / "a\tb").touch()
    done = command("list", tmp_path / "*")
    assert done.returncode == 2 and b"has a tab" in done.stderr


def test_cat_writes_files_one_after_the_other(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n" * 3_000_000)
    (tmp_path / "b c").write_bytes(b"2")
    assert command("cat", tmp_path / "a", f"file://{tmp_path}/b c").stdout == b"1\n" * 3_000_000 + b"2"


def test_cat_names_what_it_cannot_read(tmp_path):
    done = command("cat", tmp_path / "none")
    assert (done.returncode, done.stderr.decode()) == (
        2, f"weir cat: {tmp_path}/none cannot be read: No such file or directory\n")
    assert b"is not a regular file" in command("cat", tmp_path).stderr
    assert command("cat").returncode == 2 and b"NAME" in command("cat").stderr
    assert command("list", "--help").returncode == 0


def test_a_reader_that_closes_early_ends_cat_without_a_message(tmp_path):
    (tmp_path / "a").write_bytes(bytes(10 << 20))
    with subprocess.Popen([sys.executable, "-m", "weir", "cat", str(tmp_path / "a")], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PACKAGE)}) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(60) == 141


def test_a_url_without_fsspec_names_the_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(objects.NotInstalledError, match="s3://b/k needs the package fsspec.*pip install fsspec s3fs"):
        objects.open_object("s3://b/k")


def test_parquet_without_pyarrow_names_the_package():
    code = "import sys; sys.modules['pyarrow'] = None; from weir.cli import main; sys.exit(main(['parquet', 'x']))"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"weir parquet: Parquet needs the package pyarrow")


def test_a_url_of_an_unknown_kind_is_named():
    pytest.importorskip("fsspec", reason="needs the package fsspec")
    with pytest.raises(WeirError, match="foo://a/b: Protocol not known: foo"):
        objects.list_files("foo://a/b")


def test_names_of_a_store_keep_scheme_and_host(monkeypatch):
    fsspec = pytest.importorskip("fsspec", reason="needs the package fsspec")

    class Hadoop(fsspec.AbstractFileSystem):
        """Gives paths without the host, as that of hdfs:// does, and no option but its own."""

        protocol = "weirtest"

        @classmethod
        def _strip_protocol(cls, path):
            return "/" + path.split("://")[1].split("/", 1)[1] if "://" in path else path

        def ls(self, path, detail=True, **_):
            found = [{"name": "/d/b.csv", "size": 2, "type": "file", "mtime": "5"},
                     {"name": "/d/a.csv", "size": 1, "type": "file"}]
            return found if detail else [each["name"] for each in found]

        def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None):
            return open(os.devnull, "rb")

    fsspec.register_implementation("weirtest", Hadoop, clobber=True)
    assert objects.list_files("weirtest://host:9000/d/*.csv") == [
        ("weirtest://host:9000/d/a.csv", 1, ""), ("weirtest://host:9000/d/b.csv", 2, "5")]
    with objects.open_object("weirtest://host:9000/d/a.csv", cache_type="none") as file:
        assert file.read() == b""
    memory = fsspec.filesystem("memory")
    memory.pipe("/weir/a.csv", b"1")
    (listed,) = objects.list_files("memory://weir/*.csv")
    with objects.open_object(listed.name, block_size=1 << 20) as file:
        assert file.read() == b"1"


# S3.


@pytest.fixture(scope="module", name="s3")
def fixture_s3():
    """Starts a server, and returns the variables by which programs reach it and a client."""
    if MISSING:
        pytest.skip(f"a server of S3 needs the packages {', '.join(MISSING)} (pip install 'moto[server]' s3fs)")
    import boto3

    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        port = re.match(rb"port (\d+)", server.stdout.readline())
        assert port, "the server of moto did not start"
        env = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(port[1])}", "AWS_ACCESS_KEY_ID": "key",
               "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
        client = boto3.client("s3", endpoint_url=env["AWS_ENDPOINT_URL"], region_name="us-east-1",
                              aws_access_key_id="key", aws_secret_access_key="secret")
        client.create_bucket(Bucket="weir")
        yield env, client
    finally:
        server.kill()
        server.wait()


SERVER = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


def test_objects_of_s3_are_listed_with_their_etags(s3):
    env, client = s3
    etags = {}
    for key in ("list/b.csv", "list/a b.csv", "list/deep/c.csv", "list/d.tsv"):
        etags[key] = client.put_object(Bucket="weir", Key=key, Body=key.encode())["ETag"].strip('"')
    done = command("list", "s3://weir/list/*.csv", env=env)
    assert done.stdout.decode() == "".join(f"s3://weir/{key}\t{len(key)}\t{etags[key]}\n"
                                           for key in ("list/a b.csv", "list/b.csv")), done.stderr
    assert command("list", "s3://weir/list/**/*.csv", env=env).stdout.count(b"\n") == 3
    assert command("list", "s3://weir/none/*", env=env).stdout == b""
    done = command("list", "s3://weir/list/**.csv", env=env)
    assert done.returncode == 2 and b"s3://weir/list/**.csv: " in done.stderr


def test_objects_of_s3_are_written_as_they_are(s3):
    env, client = s3
    text = b"label,user\n" + b"1,7\n" * 5_000_000
    client.put_object(Bucket="weir", Key="cat/x #?%41.csv.gz", Body=gzip.compress(text, 1))
    done = command("cat", "s3://weir/cat/x #?%41.csv.gz", env=env)
    assert done.returncode == 0 and gzip.decompress(done.stdout) == text
    done = command("cat", "s3://weir/cat/none", env=env)
    assert (done.returncode, done.stderr) == (2, b"weir cat: s3://weir/cat/none is not there\n")


def test_parquet_of_s3_is_read_by_columns(s3, tmp_path):
    env, client = s3
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    rows = 20_000
    table = pa.table({"label": [i % 2 for i in range(rows)], "user": [f"user {i % 99}" for i in range(rows)],
                      "unused": [f"{i * 7919}" for i in range(rows)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3000)
    client.upload_file(str(tmp_path / "t.parquet"), "weir", "parquet/t.parquet")
    done = command("parquet", "s3://weir/parquet/t.parquet", "--columns=user,label", env=env)
    assert done.returncode == 0, done.stderr
    assert decode(done.stdout).columns == {"user": [each.encode() for each in table["user"].to_pylist()],
                                           "label": table["label"].to_pylist()}
    for key, body, code, message in (
            ("none", None, 2, "is not there"), ("text", b"label,user\n", 2, "is not a Parquet file"),
            ("cut", (tmp_path / "t.parquet").read_bytes()[:-9], 4, "is cut")):
        if body is not None:
            client.put_object(Bucket="weir", Key=f"parquet/{key}", Body=body)
        done = command("parquet", f"s3://weir/parquet/{key}", env=env)
        assert done.returncode == code and done.stderr.decode().startswith(
            f"weir parquet: s3://weir/parquet/{key} {message}"), done.stderr


def test_parquet_of_s3_needs_pyarrow_alone(s3, tmp_path):
    env, client = s3
    pa = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "t.parquet")
    client.upload_file(str(tmp_path / "t.parquet"), "weir", "alone/t.parquet")
    (tmp_path / "fsspec.py").write_text("raise ImportError('hidden by a test')")
    done = command("parquet", "s3://weir/alone/t.parquet", env={**env, "PYTHONPATH": f"{tmp_path}:{PACKAGE}"})
    assert done.returncode == 0, done.stderr
    assert decode(done.stdout).columns == {"a": [1, 2]}
    done = command("parquet", "s3://weir/alone/none", env={**env, "PYTHONPATH": f"{tmp_path}:{PACKAGE}"})
    assert (done.returncode, done.stderr) == (2, b"weir parquet: s3://weir/alone/none is not there\n")


def test_a_store_that_is_not_reached_is_an_error_of_one_line(s3):
    env, _ = s3
    done = command("cat", "s3://weir/a", env={**env, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"})
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"127.0.0.1:1" in done.stderr
