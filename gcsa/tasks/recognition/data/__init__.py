"""Text lines and their transcriptions, from files to batches."""
