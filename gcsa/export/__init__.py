"""A model as a file of another format."""

from gcsa.export.formats import FORMATS, export

__all__ = ["FORMATS", "export"]
