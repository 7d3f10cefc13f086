"""Pictures for all tasks: reading files, listing folders, windows of large images, and what makes an image ready for a network."""
