"""`bench trust`: what stabilizer promises about data, training and safety, attacked and measured, in one table."""
