"""What the company has on file, appended month by month; readers get no further than the last closing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from arena_jax.draws import Flash
from arena_jax.errors import ArenaError
from arena_jax.ledger import total_assets
from arena_jax.llm.dates import date_label
from arena_jax.llm.statements import books_before, tied
from arena_jax.structs import INSTRUMENT_NAMES, Books, Observation

OPENING = -1  # the month before the start, whose statements are public


@dataclass(frozen=True)
class Settlement:
    """How a funding request ended: amounts in $, rate in % a year; received 0 is a refusal."""

    instrument: str
    requested: int
    received: int
    rate: float
    month_asked: int
    month_settled: int


def settlements(observation: Observation) -> tuple[Settlement, ...]:
    """The notices that a month opens with."""
    return tuple(
        Settlement(
            INSTRUMENT_NAMES[int(notice.instrument)],
            round(float(notice.requested)),
            round(float(notice.received)),
            round(float(notice.rate), 3),
            int(notice.month_asked),
            int(observation.month),
        )
        for notice in observation.notices
        if int(notice.instrument) in INSTRUMENT_NAMES
    )


@dataclass(frozen=True)
class Archive:
    """Records up to the month that opens. The books are hidden; `closed_month` alone reads them."""

    _books: tuple[Books, ...]  # tied, by month from OPENING
    _flash: tuple[Flash, ...]  # by month from 0, with the errors drawn in their months
    settled: tuple[Settlement, ...]
    closed_through: int

    @classmethod
    def of_opening(cls, books: Books) -> Archive:
        """The file of t = 0: one month of public statements."""
        return cls((tied(books_before(books), books),), (), (), OPENING)

    @property
    def last_month(self) -> int:
        """The month before the one that opens."""
        return len(self._books) - 1 + OPENING

    @property
    def largest_assets(self) -> float:
        """The largest total assets so far in $: hidden, the measure of what rounding can do."""
        return max(float(total_assets(books)) for books in self._books)

    def after_month(self, books: Books, flash: Flash, settled: tuple[Settlement, ...]) -> Archive:
        """One more month on file, and what settled at its end."""
        return replace(
            self,
            _books=(*self._books, tied(self._books[-1], books)),
            _flash=(*self._flash, flash),
            settled=self.settled + settled,
        )

    def closed(self, through: int) -> Archive:
        """The books reconciled through the end of a month."""
        return replace(self, closed_through=through)

    def closed_month(self, month: int) -> Books:
        """Tied books of a closed month; raises `ArenaError` for any other."""
        if not OPENING <= month <= self.closed_through:
            raise ArenaError(
                f"month must lie from {OPENING} to {self.closed_through} ({date_label(self.closed_through)}, the last "
                f"closed month), got {month}; book_closing makes later statements readable"
            )
        return self._books[month - OPENING]

    def flash_month(self, month: int) -> Flash:
        """Flash figures of a month past the last closing."""
        if not self.closed_through < month <= self.last_month:
            raise ArenaError(f"flash figures exist for {self.closed_through + 1} to {self.last_month}, got {month}")
        return self._flash[month]
