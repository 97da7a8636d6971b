"""One file per verb. Each has `add_arguments(parser)` and `run(args) -> int`; `cli.py` holds the list and the errors."""
