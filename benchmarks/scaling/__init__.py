"""Time and memory as images, maps and networks grow."""
