"""SkyRL: its logs, configuration, validity checks and advice."""
