"""What users choose of pictures. It imports nothing: the commands say what is there without NumPy."""

MPP_RANGE = (0.01, 100.0)
"""Micrometres a pixel of microscopes; beyond it, a resolution is that of a print or a screen."""
MAX = "max"
"""Of slices: the largest values over all of them."""
STAINS = ("haematoxylin", "dab")
"""Whose amount a picture may be read by; dab is diaminobenzidine, the brown of immunohistochemistry."""
