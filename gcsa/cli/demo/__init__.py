"""A page in the browser that rotates pictures: scores, nuclei and text beside them, offline with the packaged weights."""
