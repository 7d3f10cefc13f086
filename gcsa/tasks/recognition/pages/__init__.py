"""Pages: their files, their lines, PAGE-XML and ALTO, and text written back."""
