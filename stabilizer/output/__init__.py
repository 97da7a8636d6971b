"""What a person receives: terminal pages, HTML pages, reports, exports."""
