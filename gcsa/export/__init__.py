"""Models for those who only run them: folded to plain torch, or as files of other formats."""

from gcsa.export.folding import FoldedConv2d, fold
from gcsa.export.formats import FORMATS, export

__all__ = ["FORMATS", "FoldedConv2d", "export", "fold"]
