"""Ours and other systems, side by side."""
