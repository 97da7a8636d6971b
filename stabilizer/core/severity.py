"""How a severity is shown wherever it is shown: a sign that does not rest on colour, and a word."""

ICONS = {"info": "●", "warn": "▲", "critical": "■"}
WORDS = {"info": "info", "warn": "warning", "critical": "critical"}
