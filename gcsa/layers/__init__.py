"""Equivariant layers on feature maps (B, H, W, N, C)."""
