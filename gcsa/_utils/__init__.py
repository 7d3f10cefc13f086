"""What every room may use and no user needs: validation, errors, atomic files, paths, threads."""
