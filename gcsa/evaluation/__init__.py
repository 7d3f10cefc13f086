"""Evaluation of any timm model: scores, rotations and shifts, equivariance of every stage, cost, attention and figures.

Only `figures` imports matplotlib, and only `metrics` imports torchmetrics.
"""
