"""Limits from which diagnosis and remedies call a single step large."""

STEP_KL = 0.02
"""Nats per token by which one step's updates may move the policy before that is called large (healthy: under 0.01)."""
STEP_RATIO = 0.01
"""Relative change of the weights in one step that is called large (healthy fine-tuning: 1e-5 to 1e-3)."""
