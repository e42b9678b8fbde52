"""Weir's C++ programs in bin/, the libraries that they need in lib/, and the terms of each in licenses/.

The package weir starts them; `weir launch` and the like do so from a shell.
"""

from weir_bin.version import __version__

__all__ = ["__version__"]
