"""Who may ask the dashboard, and what a browser may do with the answer."""
