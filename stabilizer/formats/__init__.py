"""Containers of numbers: console lines, JSON, CSV, TensorBoard, W&B, MLflow, trackio, notebooks."""
