"""Tests of the package as a whole: what `import weir` needs, and the wheels of tools/package."""

import hashlib
import importlib
import os
import pathlib
import subprocess
import sys
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
        "for name in ('IPython', 'grpc', 'pandas', 'tqdm', 'tqdm.auto', 'weir_bin', 'xxhash'):\n"
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
    sources = {f"weir/{each.name}" for each in (ROOT / "python/weir").glob("*.py")}
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


def test_package_refuses_an_option_that_it_does_not_know(tmp_path):
    done = subprocess.run([str(ROOT / "tools/package"), "--wheels"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "unknown option --wheels" in done.stderr
