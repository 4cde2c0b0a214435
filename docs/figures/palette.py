"""The colors and type of every figure."""

CARD, EMPTY = "#FCFBF8", "#EDECE8"
INK, INK_SOFT, SLATE, FAINT = "#1F2733", "#5A6472", "#46505E", "#E3E1DB"
BLUE, TEAL, AMBER, CORAL, VIOLET = "#2F66B0", "#258A7D", "#C98A1B", "#D0603F", "#7457A6"

# DejaVu comes with matplotlib, so the figures are the same on every machine.
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.color": INK,
    "axes.labelcolor": INK_SOFT,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SLATE,
    "ytick.color": SLATE,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.frameon": False,
}
