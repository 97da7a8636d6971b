"""Outputs recorded before a refactor and compared after it: `python -m tests.frozen record|compare`."""
