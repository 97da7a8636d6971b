"""Monitoring inside other people's training loops: `init()` for any loop, `attach()` for TRL's trainers.

Nothing here imports torch or a trainer when it is imported, and nothing raises into the loop it is a guest of.
"""
