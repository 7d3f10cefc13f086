"""Dense prediction: masks and instances, one value or label for every pixel."""
