"""The runner of the crates' test programs (scripts/unit.py): which tests it tries once more."""

import contextlib
import importlib.util
import io
import os
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = importlib.util.spec_from_file_location("unit", os.path.join(TOP, "scripts/unit.py"))
unit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(unit)

PRINTED = b"""
running 4 tests
test a::passes ... ok
test a::fails ... FAILED
test panics - should panic ... FAILED
test lists::more ... ok

successes:

---- lists::more stdout ----
test other::program ... FAILED

failures:
    other::program

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

failures:

---- a::fails stdout ----
it says why

failures:
    a::fails
    panics

test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""


class FailedTests(unittest.TestCase):
    def test_those_of_the_program_itself(self):
        self.assertEqual(unit.failed_tests(PRINTED), ["a::fails", "panics"])

    def test_none_of_a_program_that_ended_without_a_list(self):
        for printed in (b"", b"test a::fails ... FAILED\nSegmentation fault\n", PRINTED.replace(b"    a::fails\n    panics\n", b"")):
            self.assertEqual(unit.failed_tests(printed), [])

    def test_a_second_try_counts_only_if_all_of_them_ran(self):
        program = {"target": {"src_path": "/c/src/lib.rs", "kind": ["lib"]}, "manifest_path": "/c/Cargo.toml"}
        program |= {"package_id": "path+file:///c#xebec-c@0.1.0", "executable": "/c/program"}
        tried = []
        real, unit.show = (unit.run, unit.show), lambda program, printed: None
        try:
            for code, printed, fails in [
                (0, b"test result: ok. 2 passed; 0 failed;", False),
                (0, b"test result: ok. 1 passed; 0 failed;", True),
                (1, b"test result: FAILED. 1 passed; 1 failed;", True),
            ]:
                unit.run = lambda program, arguments, ended=(code, printed): tried.append(arguments) or ended
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    self.assertEqual(unit.fails_again(program, ["a::fails", "panics"]), fails)
                self.assertEqual(said.getvalue().count("FLAKY"), 0 if fails else 2)
        finally:
            unit.run, unit.show = real
        self.assertEqual(tried[0], ["--exact", "--show-output", "a::fails", "panics"])


if __name__ == "__main__":
    unittest.main()
