"""One outside system or format per file."""
