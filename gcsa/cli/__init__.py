"""The commands of `gcsa`, a module each: what is typed is parsed, the packages do the work, and what came out is printed."""
