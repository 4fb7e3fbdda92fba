"""`python -m regard` is the program `regard`."""

import sys

from regard.cli.main import main

sys.exit(main())
