"""Write the JSON Schema of the messages of streams, by which the code checks them, too.

It is in the specification, for programs that do not read Python. ``make fmt`` runs this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from plait.stream.message_schema import SCHEMA

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "spec" / "messages.schema.json"
TEXT: Final = json.dumps(SCHEMA, indent=2) + "\n"

if __name__ == "__main__":
    PAGE.write_text(TEXT, encoding="utf-8")
