"""Trainers of which only the advice is known: LLaMA-Factory, Stable-Baselines3, and unrecognised ones."""
