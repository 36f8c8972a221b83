"""Fakes, faults and conformance kits, for tests of Plait and of code that uses it.

The kits test your own adapters. Subclass one in a pytest module and provide its fixture::

    class TestMyStore(StoreKit):
        @pytest.fixture
        def store(self):
            return MyStore(...)

``pytest.register_assert_rewrite("plait.testing")`` in ``conftest.py`` makes failures more detailed.
"""

from __future__ import annotations

from plait.testing.counting import CountingStore, StoreCall
from plait.testing.faults import Fault, FaultStore, SimulatedCrashError
from plait.testing.lock_kit import ExpiringLockKit, LockKit, LosableLockKit, SharedLockKit
from plait.testing.policy_kit import PolicyKit
from plait.testing.ports import ManualBackground, SeqIds, SimClock, sim_ports
from plait.testing.sink_kit import SinkKit
from plait.testing.store_kit import SharedStoreKit, StoreKit
from plait.testing.wrapper import open_wrapped

__all__ = [
    "CountingStore",
    "ExpiringLockKit",
    "Fault",
    "FaultStore",
    "LockKit",
    "LosableLockKit",
    "ManualBackground",
    "PolicyKit",
    "SeqIds",
    "SharedLockKit",
    "SharedStoreKit",
    "SimClock",
    "SimulatedCrashError",
    "SinkKit",
    "StoreCall",
    "StoreKit",
    "open_wrapped",
    "sim_ports",
]
