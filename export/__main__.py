"""`python -m export`."""

import sys

from .commands import main

if __name__ == "__main__":  # a worker process imports this file again
    sys.exit(main())
