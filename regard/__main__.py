"""`python -m regard` is the program `regard`."""

import sys

from regard.cli import main

sys.exit(main())
