"""Keeps GRPO/PPO training of language models stable: trains, watches, explains and repairs runs.

Importing this package is cheap and never imports torch; post-hoc analysis works without it.
"""

__version__ = "0.1.0"
