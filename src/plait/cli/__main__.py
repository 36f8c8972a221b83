"""``python -m plait.cli`` is ``tablectl``."""

from __future__ import annotations

import sys

from plait.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
