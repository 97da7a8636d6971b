"""A finished or imported run, analysed: findings, causes, advice, forecast, what is healthy."""
