"""Pictures and their label maps, from files to batches."""
