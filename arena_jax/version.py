"""The version of the package; results are reproducible from (version, seed)."""

__version__ = "0.1.0"
