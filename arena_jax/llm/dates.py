"""Anonymised dates: months are labelled, years are not told (paper section 3.5)."""

from __future__ import annotations

_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS_A_YEAR = len(_NAMES)


def date_label(month: int) -> str:
    """Month 0 is "Jan 2xx0", month 120 "Jan 2x10", and -1, the month before the start, "Dec 1xx9"."""
    year, place = divmod(month, MONTHS_A_YEAR)
    if year < 0:
        return f"{_NAMES[place]} 1xx{year % 10}"
    digits = f"{year:03d}"
    hidden = len(digits[:-1]) - len(digits[:-1].lstrip("0"))
    return f"{_NAMES[place]} 2{'x' * hidden}{digits[hidden:]}"


def year_end_before(month: int) -> int:
    """The last December before `month`."""
    return month - month % MONTHS_A_YEAR - 1
