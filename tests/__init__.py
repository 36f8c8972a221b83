"""The tests; whoever imports them first has the thresholds of what follows low, if asked for."""

import os

if os.environ.get("PLAIT_TEST_THRESHOLDS"):
    from tests.support.thresholds import lower

    lower()
