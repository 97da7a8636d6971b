"""Problems from a data set: common file formats, Hugging Face `datasets`, chat templates.

    config.py   the settings
    table.py    one reader per format: rows with their place in the file
    order.py    the row at each position of the stream, and the held-out rows; pure arithmetic
    task.py     the task: prompts, held-out problems, the stream

Importing this package does not import torch, `datasets` or `pyarrow`.
"""
