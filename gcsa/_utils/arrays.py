"""The type of NumPy arrays whose element type is not known beforehand."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
