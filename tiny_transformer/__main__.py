"""`python -m tiny_transformer`."""

import sys

from tiny_transformer.cli import main

if __name__ == "__main__":  # a worker process imports this file again
    sys.exit(main())
