"""A faster path for small Llama-like models on a CPU; training works without it."""
