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
        self.assertEqual(unit.failed_tests(101, PRINTED), ["a::fails", "panics"])

    def test_none_if_anything_else_went_wrong(self):
        cut = PRINTED.replace(b"    a::fails\n    panics\n", b"")
        for code, printed in [
            (101, b""),
            (-11, PRINTED),
            (1, PRINTED),
            (101, cut),
            (101, b"test a::fails ... FAILED\nSegmentation fault\n"),
            # A child wrote into its line, so it would not be tried again.
            (101, PRINTED.replace(b"test a::fails ... FAILED", b"test a::fails ... said FAILED")),
            (101, PRINTED.replace(b"2 failed", b"3 failed")),
            # Random values found it, and others would not.
            (101, PRINTED.replace(b"it says why", b"minimal failing input: x = 3")),
        ]:
            self.assertEqual(unit.failed_tests(code, printed), [], (code, printed))

    def test_each_failed_test_says_why_once_more(self):
        panicked = b"\nthread 'a::fails' panicked at a.rs:1:2:\nit says why" + b"\nmore" * 20
        passed = b"---- lists::more stdout ----\nthread 'x' panicked at x.rs:1:2:\nas it should\n"
        printed = PRINTED.replace(b"it says why", panicked).replace(b"---- lists::more stdout ----\n", passed)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            unit.tell_again(printed)
        lines = shown.getvalue().splitlines()
        self.assertEqual(lines[0], "test a::fails ... FAILED")
        self.assertEqual(lines[1:3], ["     thread 'a::fails' panicked at a.rs:1:2:", "     it says why"])
        self.assertEqual(len(lines), 1 + unit.TOLD)
        # As a test that starts the program again shows it.
        inner = b"\nfailures:\n\n---- outer stdout ----\n\nthread 'outer' panicked at o.rs:1:2:\n" + printed + b"\nfailures:\n    outer\n"
        self.assertEqual(sorted(unit.said(inner)), ["a::fails", "outer"])

    def test_a_flaky_test_has_a_line_of_its_own(self):
        program = {"target": {"src_path": "/c/src/lib.rs", "kind": ["lib"]}, "manifest_path": "/c/Cargo.toml"}
        program |= {"package_id": "path+file:///c#xebec-c@0.1.0", "executable": "/c/program"}
        shown = io.TextIOWrapper(io.BytesIO())
        real, unit.run = unit.run, lambda *_: (0, b"\ntest result: ok. 1 passed; 0 failed\n")
        try:
            with contextlib.redirect_stdout(shown):
                self.assertFalse(unit.fails_again(program, ["a::fails"]))
        finally:
            unit.run = real
        shown.flush()
        lines = shown.buffer.getvalue().decode().splitlines()
        self.assertEqual([line for line in lines if line.startswith("FLAKY ")], lines[-1:])

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
