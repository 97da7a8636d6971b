"""What pages show, as plain data: no Dash here, and no arithmetic left for a callback."""
