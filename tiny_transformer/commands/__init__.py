"""The subcommands of `python -m tiny_transformer`, one a file.

Each module has a docstring whose first line is its help, an EXAMPLE, `add_arguments(parser)` and
`run(options)`; heavy imports happen inside `run`.
"""
