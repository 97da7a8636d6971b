"""Parts of pages as Dash components."""
