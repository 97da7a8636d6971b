"""The run directory: written by one process, read and followed by any number, listed from its small files.

Files are either appended to line by line or replaced whole, and nothing is locked. What belongs here is what holds for
a run of any trainer: the writer, the reader, the run in memory (`history.py`), the journal, requests to a live run.
"""
