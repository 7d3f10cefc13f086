"""How fast models and layers are, start and export."""
