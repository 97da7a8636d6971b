"""One file per verb, each with `add_arguments(parser)` and `run(args) -> int`; `cli.py` holds list and errors."""
