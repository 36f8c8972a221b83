"""The chart of the documentation: each system beside plain Parquet on its own Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PANELS = {
    "bulk insert": "bulk insert",
    "upsert": "upsert, beside a whole plain write",
    "sum after 5": "sum of a column after 5 upserts",
    "all after 5": "all columns after 5 upserts",
    "look-up after 5": "look-up of a key after 5 upserts",
    "compaction": "compaction, beside a whole plain write",
    "all compacted": "all columns after compaction",
    "upsert with upkeep": "small upsert with its upkeep",
}
OURS, OTHERS = "#00695c", "#b0bec5"


def draw(result: Mapping[str, Any], place: Path) -> None:
    """Draw bars, one panel a measurement, with plain Parquet as 1."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    ratios = result["beside_plain"]
    names = [name for name in ratios if not name.startswith("plain")]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(3 * len(PANELS), 0.4 * len(names) + 1))
    for axis, (what, title) in zip(axes, PANELS.items(), strict=True):
        values = [ratios[name].get(what, 0) for name in names]
        colors = [OURS if name.startswith("plait") else OTHERS for name in names]
        bars = axis.barh(names, values, color=colors)
        axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(title, fontsize=9)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names))
    figure.suptitle("time beside plain Parquet on the same Spark (less is better)", fontsize=10)
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})
