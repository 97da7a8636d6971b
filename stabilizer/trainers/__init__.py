"""What is known of each trainer, one folder a trainer: log, names, configuration, validity, advice."""
