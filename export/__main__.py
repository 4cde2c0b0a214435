"""`python -m export`."""

import os
import sys

# Numpy reads this when it is imported. A proof runs a case on each core, and OpenBLAS's threads would wait for each
# other in loops.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from .commands import main

if __name__ == "__main__":  # a worker process imports this file again
    sys.exit(main())
