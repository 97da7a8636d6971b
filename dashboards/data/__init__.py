"""The contents of pages as plain data, without Dash."""
