"""Our own trainer: its run directory and its configuration."""
