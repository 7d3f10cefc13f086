"""What every package may use and no user needs: validation, errors, atomic files, paths, threads."""
