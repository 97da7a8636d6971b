"""A run while it trains: session, user requests, following a log, replay, notifications, webhook."""
