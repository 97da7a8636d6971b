"""EasyR1: its logs, configuration and validity checks."""
