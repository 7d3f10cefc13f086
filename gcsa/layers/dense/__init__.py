"""Layers of dense prediction: maps enlarged, maps fused, and what a pixel's regular field says (design section 8)."""
