"""Holds the planner's figures against simulations; not part of the product."""
