"""The run directory: write, read, follow, list. Append-only lines, one writer per file, no locks."""
