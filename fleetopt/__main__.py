"""`python -m fleetopt`."""

import sys

from fleetopt.cli import main

if __name__ == "__main__":
    sys.exit(main())
