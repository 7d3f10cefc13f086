"""`python -m benchmarks.report [--check]`: see the package."""

import sys

from .documents import main

sys.exit(main(sys.argv[1:]))
