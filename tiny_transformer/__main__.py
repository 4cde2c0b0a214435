"""`python -m tiny_transformer`."""

import sys

from tiny_transformer.cli import main

sys.exit(main())
