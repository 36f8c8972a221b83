"""For tests of Plait and of what is built on it: fakes, faults, and conformance kits.

The kits are for adapters of your own. Subclass one in a pytest module and give its fixture::

    class TestMyStore(StoreKit):
        @pytest.fixture
        def store(self):
            return MyStore(...)

``plait.testing.scheduler`` steps the real code of several clients through orders of their calls.

``pytest.register_assert_rewrite("plait.testing")`` in ``conftest.py`` makes failures tell more.
"""

from __future__ import annotations

from plait.testing.counting import Call, CountingStore
from plait.testing.faults import Fault, FaultStore, SimulatedCrashError
from plait.testing.lock_kit import ExpiringLockKit, LockKit, LosableLockKit, SharedLockKit
from plait.testing.ports import ManualBackground, SeqIds, SimClock, sim_ports
from plait.testing.store_kit import SharedStoreKit, StoreKit
from plait.testing.tables import open_wrapped
from plait.testing.trace import Event, RecordingStore, Trace

__all__ = [
    "Call",
    "CountingStore",
    "Event",
    "ExpiringLockKit",
    "Fault",
    "FaultStore",
    "LockKit",
    "LosableLockKit",
    "ManualBackground",
    "RecordingStore",
    "SeqIds",
    "SharedLockKit",
    "SharedStoreKit",
    "SimClock",
    "SimulatedCrashError",
    "StoreKit",
    "Trace",
    "open_wrapped",
    "sim_ports",
]
