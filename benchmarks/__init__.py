"""How fast FleetOpt is, on this machine: `python -m benchmarks --help`, or `make bench`."""
