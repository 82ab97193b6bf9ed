"""Parts of the output on disk: one module for each family of formats. Equal rows give equal bytes."""
