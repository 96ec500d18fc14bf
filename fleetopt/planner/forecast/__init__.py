"""The arrival rate to plan for, forecast from counts per slice; pure and deterministic."""
