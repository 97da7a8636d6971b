"""Analysis of a finished or imported run: findings, causes, advice, forecast, healthy aspects."""
