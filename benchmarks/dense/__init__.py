"""Dense prediction: speed, large images, and other packages on the same images."""
