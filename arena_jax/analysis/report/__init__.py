"""Figures of a report: what they show (`figures`, and the modules that make them), as a page and as PNGs."""
