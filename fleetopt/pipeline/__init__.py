"""The stream: request logs in, sketches, plans, recommendations out."""
