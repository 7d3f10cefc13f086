"""Recognisers of text lines: an equivariant encoder, read by CTC or by a TrOCR decoder."""
