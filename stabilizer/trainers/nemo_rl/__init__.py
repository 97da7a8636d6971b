"""NeMo-RL: its logs, configuration, validity checks and advice."""
