"""TRL, and Open-R1 on top of it: logs, configuration, validity checks and advice."""
