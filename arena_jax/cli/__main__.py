"""`python -m arena_jax.cli`, where the console script is not on the path."""

from arena_jax.cli import main

main()
