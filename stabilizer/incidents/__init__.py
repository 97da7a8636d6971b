"""From findings to incidents: the watch over a run, and the diagnosis of causes."""
