"""The pure planner: what fleet the traffic needs. No I/O, no clock, no environment."""
