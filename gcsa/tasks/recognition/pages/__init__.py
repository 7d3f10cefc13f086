"""Pages: their lines, PAGE-XML and ALTO, and text written back."""
