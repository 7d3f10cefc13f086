"""The commands of `gcsa`, a module each: what is typed is parsed, the rooms do the work, and what came out is printed."""
