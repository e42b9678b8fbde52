"""Tests of the package as a whole: what `import weir` needs, and what tools/package makes."""

import hashlib
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import weir
from weir import programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def python(code, path=ROOT / "python", **environment):
    """Runs code in a process of its own, and returns what it prints."""
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", weir.__all__)
def test_every_name_of_the_package_loads(name):
    assert getattr(weir, name) is not None
    assert name in dir(weir)


@pytest.mark.parametrize("path", sorted((ROOT / "proto").glob("*.proto")), ids=lambda path: path.stem)
def test_every_module_of_messages_loads(path):
    assert importlib.import_module(f"weir.protos.{path.stem}_pb2").DESCRIPTOR.name == f"proto/{path.name}"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        weir.trian


def test_the_import_loads_nothing_but_the_package():
    print_foreign = (
        "import sys; before = set(sys.modules); import weir; "
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))")
    if sys.version_info >= (3, 10):
        assert python(print_foreign) == "['weir']\n"


def test_the_names_load_without_optional_packages():
    code = (
        "import sys\n"
        "for name in ('IPython', 'fsspec', 'grpc', 'pandas', 'pyarrow', 'tqdm', 'tqdm.auto', 'weir_bin', 'xxhash'):\n"
        "    sys.modules[name] = None\n"
        "import weir\n"
        "print(all(getattr(weir, name) for name in weir.__all__))")
    assert python(code) == "True\n"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Builds both wheels, with one small program."""
    output = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [str(ROOT / "tools/package"), "--wheel", f"--output={output}", str(programs.find("checkpoint"))], check=True,
        stdout=subprocess.DEVNULL, timeout=300)
    return output


def wheel(directory, name):
    found = list(directory.glob(f"{name}-{weir.__version__}-*.whl"))
    assert len(found) == 1, sorted(each.name for each in directory.iterdir())
    return found[0]


def test_the_wheel_of_the_package_runs_everywhere(wheels):
    path = wheel(wheels, "weir")
    assert path.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(path).namelist()
    sources = {str(each.relative_to(ROOT / "python")) for each in (ROOT / "python/weir").rglob("*.py")}
    assert sources | {"weir/py.typed", "weir/protos/job_pb2.py", "weir/protos/job_pb2.pyi"} <= set(names)
    assert [name for name in names if "__pycache__" in name] == []


def test_the_wheel_of_the_programs_names_the_glibc_that_it_needs(wheels):
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    assert wheel(wheels, "weir_bin").name.endswith(f"-py3-none-manylinux_{glibc}_x86_64.whl")


def test_the_wheels_hold_programs_that_python_finds_and_that_run(wheels, tmp_path):
    for name in ("weir", "weir_bin"):
        with zipfile.ZipFile(wheel(wheels, name)) as file:
            for each in file.infolist():
                path = pathlib.Path(file.extract(each, tmp_path))
                path.chmod(each.external_attr >> 16 & 0o777)
    assert (tmp_path / "weir_bin/LICENSE").is_file() and list((tmp_path / "weir_bin/licenses").iterdir())
    code = ("import subprocess; from weir import programs; p = programs.find('checkpoint'); print(p, flush=True); "
            "subprocess.run([p, '--help'], check=True)")
    said = python(code, tmp_path)
    assert said.startswith(f"{tmp_path}/weir_bin/bin/checkpoint\n") and "checkpoint list" in said


def test_the_same_input_gives_the_same_wheels(wheels, tmp_path):
    subprocess.run(
        [str(ROOT / "tools/package"), "--wheel", f"--output={tmp_path}", str(programs.find("checkpoint"))], check=True,
        stdout=subprocess.DEVNULL, timeout=300)
    for name in ("weir", "weir_bin"):
        first, second = (hashlib.sha256(wheel(each, name).read_bytes()).hexdigest() for each in (wheels, tmp_path))
        assert first == second


def test_the_wheel_and_the_tarball_hold_slurm_job(wheels, tmp_path):
    assert "weir_bin/bin/slurm_job" in zipfile.ZipFile(wheel(wheels, "weir_bin")).namelist()
    subprocess.run([str(ROOT / "tools/package"), f"--output={tmp_path / 'weir.tar.gz'}",
                    str(programs.find("checkpoint"))], check=True, stdout=subprocess.DEVNULL, timeout=300)
    with tarfile.open(tmp_path / "weir.tar.gz") as tar:
        member = tar.getmember("weir/bin/slurm_job")
        assert member.mode & 0o111 and tar.extractfile(member).read() == (ROOT / "tools/slurm_job").read_bytes()


# The package of Debian.

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")


def build_deb(path, **environment):
    subprocess.run([str(ROOT / "tools/package"), "--deb", f"--output={path}", str(programs.find("checkpoint"))],
                   check=True, stdout=subprocess.DEVNULL, timeout=300, env={**os.environ, **environment})
    return path


@pytest.fixture(scope="module")
def deb(tmp_path_factory):
    """Builds a package of Debian, with one small program."""
    return build_deb(tmp_path_factory.mktemp("deb") / "weir.deb")


@pytest.fixture(scope="module")
def root(deb, tmp_path_factory):
    """The files of the package, in a directory."""
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)
    return root


def field(deb, name):
    done = subprocess.run(["dpkg-deb", "--field", deb, name], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


@needs_dpkg
def test_the_package_of_debian_says_what_it_is_and_what_it_needs(deb):
    architecture = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True).stdout.strip()
    assert [field(deb, name) for name in ("Package", "Version", "Architecture")] == [
        "weir", weir.__version__, architecture]
    needs = dict(re.fullmatch(r"(\S+) \(>= (\S+)\)", each).groups() for each in field(deb, "Depends").split(", "))
    assert set(needs) == {"libc6", "python3", "python3-numpy", "python3-protobuf"}
    here = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert [2, 17] < [int(part) for part in needs["libc6"].split(".")] <= [int(part) for part in here.split(".")]


@needs_dpkg
def test_the_package_of_debian_has_programs_a_python_package_and_licences(deb, root):
    listed = subprocess.run(["dpkg-deb", "--contents", deb], stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert all(line.split()[1] == "root/root" for line in listed)
    assert {line.split()[0][1:] for line in listed} <= {"rwxr-xr-x", "rw-r--r--", "rwxrwxrwx"}
    assert os.readlink(root / "usr/bin/weir-checkpoint") == "../lib/weir/bin/checkpoint"
    assert (root / "usr/lib/python3/dist-packages/weir/protos/job_pb2.py").is_file()
    assert not list(root.rglob("RECORD")) and not list(root.rglob("__pycache__"))
    for name in ("copyright", "LICENSE", "THIRD_PARTY.md", "licenses/libstdc++6"):
        assert (root / "usr/share/doc/weir" / name).is_file()
    libraries = [each for each in (root / "usr/lib/weir/lib").iterdir() if each.name.startswith("libc.")]
    assert libraries == []


@needs_dpkg
def test_programs_of_the_package_of_debian_run_and_python_finds_them(root):
    environment = {"PATH": f"{root / 'usr/bin'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": str(root / "usr/lib/python3/dist-packages")}

    def run(*command):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        return done.stdout

    assert "checkpoint list" in run("weir-checkpoint", "--help")
    assert run(sys.executable, root / "usr/bin/weir", "--version") == f"weir {weir.__version__}\n"
    assert "checkpoint list" in run(sys.executable, root / "usr/bin/weir", "checkpoint", "--help")
    assert (root / "usr/bin/weir").read_text().startswith("#!/usr/bin/python3\n")


@needs_dpkg
def test_the_package_of_debian_has_the_sums_of_its_files(deb, root, tmp_path):
    subprocess.run(["dpkg-deb", "--control", deb, tmp_path], check=True)
    sums = dict(reversed(line.split("  ")) for line in (tmp_path / "md5sums").read_text().splitlines())
    files = {str(each.relative_to(root)) for each in root.rglob("*") if each.is_file() and not each.is_symlink()}
    assert set(sums) == files
    for name, md5 in sums.items():
        assert hashlib.md5((root / name).read_bytes()).hexdigest() == md5
    for script in ("postinst", "prerm"):
        subprocess.run(["sh", "-n", tmp_path / script], check=True)
        assert os.access(tmp_path / script, os.X_OK)


@needs_dpkg
def test_the_same_input_gives_the_same_package_of_debian(deb, tmp_path):
    mask = os.umask(0o077)
    try:
        again = build_deb(tmp_path / "again.deb", TMPDIR=str(tmp_path))
    finally:
        os.umask(mask)
    assert again.read_bytes() == deb.read_bytes()
    later = build_deb(tmp_path / "later.deb", SOURCE_DATE_EPOCH="1700000000")
    listed = subprocess.run(["dpkg-deb", "--contents", later], stdout=subprocess.PIPE, text=True).stdout
    assert {line.split()[3] for line in listed.splitlines()} == {"2023-11-14"}


@needs_dpkg
def test_slurm_job_of_the_package_of_debian_finds_launch(root, tmp_path):
    (root / "usr/lib/weir/bin/launch").write_text("#!/bin/sh\n")
    (root / "usr/lib/weir/bin/launch").chmod(0o755)
    for name, does in [("scontrol", 'echo "NodeAddr= n0"'), ("scancel", ""), ("srun", 'echo "started: $*"; exit 0')]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.textproto").touch()
    done = subprocess.run(
        [root / "usr/bin/weir-slurm_job", tmp_path / "job.textproto"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=60,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n0"})
    assert f" {root}/usr/lib/weir/bin/launch --job={tmp_path}/job.textproto " in done.stdout, done


def test_package_refuses_an_option_that_it_does_not_know(tmp_path):
    done = subprocess.run([str(ROOT / "tools/package"), "--wheels"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "unknown option --wheels" in done.stderr
