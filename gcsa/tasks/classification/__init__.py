"""Images with one label each."""
