"""The earlier place of `gcsa.ocr.recognizers.trocr`, which the first README showed."""

from gcsa.ocr.recognizers.trocr import TrOCRRecognizer, character_tokenizer, create_trocr

__all__ = ["TrOCRRecognizer", "character_tokenizer", "create_trocr"]
