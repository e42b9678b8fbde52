"""python3 -m weir: the command `weir`."""

import sys

from weir.cli import main

if __name__ == "__main__":
    sys.exit(main())
