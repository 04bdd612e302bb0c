"""The command line: ``eqsat`` and its subcommands. Start with ``cli.py``."""
