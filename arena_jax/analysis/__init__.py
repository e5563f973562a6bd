"""From records to figures: metrics with intervals, tables, published results."""
