"""`python -m tensus_tn`: the command line."""

import sys

from tensus_tn.cli import main

if __name__ == "__main__":
    sys.exit(main())
