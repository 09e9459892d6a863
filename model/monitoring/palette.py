"""Colors of all charts."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Palette of Okabe and Ito, safe for color-blind readers, without black and yellow."""

INK, GRAY, GRID, SURFACE = "#222222", "#666666", "#DDDDDD", "#FFFFFF"
"""Colors of text and marks, of axes, of grid lines, and of the background."""
