"""`python -m vramscope`: the same as the command `vramscope`."""

import sys

from vramscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
