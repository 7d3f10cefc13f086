"""Text recognition: adapters, transcription, TrOCR."""
