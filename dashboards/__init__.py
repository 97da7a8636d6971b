"""The Dash app: one page about runs, live. It reads run directories and never writes to one."""
