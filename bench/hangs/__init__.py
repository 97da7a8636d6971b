"""Whether hangs of real processes are found and located, and what is reported where nothing hangs."""
