"""`python -m bench`: measure this checkout; every table says how its figures were taken."""

from __future__ import annotations

import sys

from stabilizer.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
