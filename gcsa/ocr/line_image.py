"""The earlier place of `gcsa.ocr.data.line_image`, which the first README showed."""

from gcsa.ocr.data.line_image import fit_line, read_line

__all__ = ["fit_line", "read_line"]
