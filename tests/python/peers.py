"""Programs and packages of others that tests check Weir against: their versions, and which tests need them.

python3 peers.py prints the versions; exit status 1 if one is missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from typing import Optional

# Distribution: the modules of tests/python that read or run it.
PACKAGES = {
    "fsspec": ("test_follow", "test_objects", "test_pipe"),
    "grpcio": ("test_client",),
    "kubernetes-validate": ("test_kubernetes",),
    "markdown-it-py": ("test_readme", "test_site"),
    "moto": ("test_follow", "test_objects", "test_pipe"),
    "mypy": ("test_types",),
    "numpy": ("test_checkpoint", "test_columns", "test_prediction"),
    "onnx": ("test_onnx",),
    "onnxruntime": ("test_onnx",),
    "pandas": ("test_columns", "test_prediction", "test_run"),
    "prometheus-client": ("test_monitoring",),
    "protobuf": ("test_job",),
    "pyarrow": ("test_objects", "test_parquet", "test_pipe"),
    "Pygments": ("test_site",),
    "PyYAML": ("test_containers", "test_docker", "test_kubernetes", "test_monitoring"),
    "s3fs": ("test_follow", "test_objects", "test_pipe"),
    "safetensors": ("test_safetensors",),
    "tensorboard": ("test_event_files",),
    "tqdm": ("test_run",),
    "types-protobuf": ("test_types",),
    "xxhash": ("test_checkpoint",),
}

# Program: the command that tells its version, and the modules that run it; none of those here for the last three, which
# are those of tests/e2e/processes.
PROGRAMS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "chromium": (["chromium", "--version"], ("test_page", "test_site")),
    "fish": (["fish", "--version"], ("test_completion",)),
    "zsh": (["zsh", "--version"], ("test_completion",)),
    "kubectl": (["kubectl", "version", "--client"], ("test_kubernetes",)),
    "prometheus": (["prometheus", "--version"], ("test_monitoring",)),
    "promtool": (["promtool", "--version"], ("test_monitoring",)),
    "debootstrap": (["/usr/sbin/debootstrap", "--version"], ("test_docker",)),
    "iproute2": (["/usr/sbin/ip", "-V"], ("test_docker",)),
    "Slurm": (["/usr/sbin/slurmd", "-V"], ()),
    "Open MPI": (["mpirun", "--version"], ()),
    "torchrun": ([os.environ.get("WEIR_TORCHRUN") or "torchrun"], ()),
}


def _version_of_program(command: list[str]) -> Optional[str]:
    program = shutil.which(command[0])
    if program is None:
        return None
    if len(command) == 1:  # torchrun does not tell its version
        python = os.path.join(os.path.dirname(os.path.realpath(program)), "python")
        command = [python, "-c", "import importlib.metadata as m; print(m.version('torch'))"]
    try:
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout
    except OSError:
        return None
    found = re.search(r"\d+(\.\d+)+", said)
    return found.group() if found else None


def version(name: str) -> Optional[str]:
    """Returns the version of a peer here, None if it is not installed."""
    if name in PROGRAMS:
        return _version_of_program(PROGRAMS[name][0])
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def of_module(module: str) -> list[str]:
    """Returns the names of the peers that a module of tests needs."""
    tests = {**PACKAGES, **{name: modules for name, (_, modules) in PROGRAMS.items()}}
    return [name for name, modules in tests.items() if module in modules]


def main() -> None:
    versions = {name: version(name) for name in (*PACKAGES, *PROGRAMS)}
    print("peers: " + ", ".join(f"{name} {found}" for name, found in versions.items() if found))
    missing = [name for name, found in versions.items() if not found]
    if missing:
        sys.exit(f"peers that are not installed: {', '.join(missing)}")


if __name__ == "__main__":
    main()
