"""Search-R1: its validity checks; the rest is shared with veRL, which it is built on."""
