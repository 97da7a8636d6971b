"""Configuration files as settings with their place: YAML, TOML, shell commands, Python scripts."""
