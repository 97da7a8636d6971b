"""Configuration files (YAML, TOML, shell commands, Python scripts) as settings, each with its place in the file.

What belongs here is the syntax of a file. What a setting means to a trainer belongs in `trainers`.
"""
