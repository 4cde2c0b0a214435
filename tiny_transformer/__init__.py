"""Tiny Transformer: train, export, prove equal and serve a small Transformer."""

__version__ = "0.1.0"
