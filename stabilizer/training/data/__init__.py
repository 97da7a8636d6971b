"""Problems from a data set: files as people have them, Hugging Face `datasets`, chat templates.

    config.py   what can be set
    table.py    one reader per format: rows that know where they stand
    order.py    which row comes at which position of the stream, and which rows are held out; pure arithmetic
    task.py     the task: prompts, held-out problems, the stream

Importing this package imports neither torch nor `datasets` nor `pyarrow`.
"""
