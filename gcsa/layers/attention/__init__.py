"""How positions and group elements attend to each other: without positions (G-CSA), and with relative encodings (G-SA)."""
