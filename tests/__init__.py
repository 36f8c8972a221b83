"""The tests. Import them before plait: they lower its thresholds, if that is asked."""

import os

if os.environ.get("PLAIT_TEST_THRESHOLDS"):
    from tests.support.thresholds import lower

    lower()
