"""Discrete-event simulation of a fleet: what the planner's formulas are held against.

Pure and seeded: the same requests and the same fleet give the same figures, with Numba or without.
"""
