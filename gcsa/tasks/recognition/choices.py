"""What users of recognisers choose by name. It imports no torch: the command says what is there without it."""

import os
from pathlib import Path

ORIENTATIONS = ("upright", "any")
MODERN = ("ligatures", "long-s", "words")
FORMS = ("NFC", "modern", *MODERN, "apostrophes", "hyphens", "spaces", "NFD")
"""Of the text that is written; `MODERN` are those of "modern"."""
FINDERS = ("ppocr", "kraken")
"""What finds the lines on images of pages."""
ENDINGS = {"text": ".txt", "json": ".jsonl", "page": ".xml", "alto": ".xml", "hocr": ".hocr", "pdf": ".pdf"}
"""Of the files in a folder, by format."""
FORMATS = tuple(ENDINGS)
SCREEN = "-"
"""As --output."""
PAGE_FORMATS = FORMATS[2:]
"""Those that say where the lines of a page are."""


def is_folder(output: str) -> bool:
    """Whether files are written into `output`: it ends in a slash, or is a folder already."""
    return output.endswith(("/", os.sep)) or Path(output).is_dir()
