"""Equivariance errors, and what shifts do."""
