"""Fits a prompt into a token budget. Pure: no I/O, no clock, no environment."""
