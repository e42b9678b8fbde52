"""The wheel weir-bin: C++ programs, and no Python that depends on the version of the interpreter.

tools/package --wheel puts programs, libraries and licences beside weir_bin/__init__.py, and builds.
"""

import os
import platform

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class ProgramsDistribution(Distribution):
    """Says that the package depends on the platform, though it has no extension modules."""

    def has_ext_modules(self):
        return True


class ProgramsWheel(bdist_wheel):
    """Tags the wheel with the oldest glibc that can run it: that of this machine, which built the programs."""

    def get_tag(self):
        glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")
        return "py3", "none", f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"


setup(cmdclass={"bdist_wheel": ProgramsWheel}, distclass=ProgramsDistribution)
