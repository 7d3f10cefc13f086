"""A page in the browser on which pictures turn: scores, nuclei and text beside them, offline from the packaged weights."""
