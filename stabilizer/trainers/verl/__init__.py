"""veRL: its logs, configuration, validity checks and advice."""
