"""Serve the page: `python app.py`. Runs as it is on a Hugging Face Space."""

import sys

from tiny_transformer.ui.server import main

if __name__ == "__main__":
    sys.exit(main())
