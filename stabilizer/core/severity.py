"""How a severity is shown: an icon that does not depend on colour, and a word."""

ICONS = {"info": "●", "warn": "▲", "critical": "■"}
WORDS = {"info": "info", "warn": "warning", "critical": "critical"}
