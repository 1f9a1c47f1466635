"""Runs the tests of this folder, and counts them as the crates' are counted (scripts/test.sh)."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
result = unittest.TextTestRunner().run(unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__))))
# A test counts once, however many of its parts failed.
failed = len({getattr(test, "test_case", test).id() for test, _ in [*result.failures, *result.errors]})
failed += len(result.unexpectedSuccesses)
skipped = len(result.skipped)
print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
sys.exit(failed > 0 or result.testsRun == 0)
