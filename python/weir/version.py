"""The version of Weir's Python packages, weir and weir-bin."""

__version__ = "0.1.0"
