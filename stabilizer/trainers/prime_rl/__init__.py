"""prime-rl: its logs, configuration, validity checks and advice."""
