"""Settings, read once at the edge, and the engine profile catalogue."""
