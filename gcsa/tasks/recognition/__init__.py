"""Text-line recognition that does not depend on which way up a page was scanned; `pip install gcsa-vit[ocr]`."""
