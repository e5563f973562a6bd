"""What is refused is refused in one line."""

import pytest

from arena_jax.errors import ArenaError


def one_line(call, *words):
    """The call raises an `ArenaError` of one line, with these words in it."""
    with pytest.raises(ArenaError) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert all(word in str(refused.value) for word in words), refused.value
