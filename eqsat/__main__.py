"""``python -m eqsat`` is the command ``eqsat``."""

from eqsat.command.cli import main

if __name__ == "__main__":
    main(prog_name="eqsat")
