"""`python docs/report [--check]`: see `report`."""

import sys
from pathlib import Path

# Python puts docs/report on the path, the folder of this file; the package `report` lies one folder higher.
sys.path[0] = str(Path(__file__).parents[1])

from report.documents import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
