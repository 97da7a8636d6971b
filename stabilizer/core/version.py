"""The version of this package; pyproject.toml states the same."""

__version__ = "0.2.0"
