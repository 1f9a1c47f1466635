"""What the catalogue's images are built by."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import catalogue
import recipes


class Recipes(unittest.TestCase):
    def written(self, name, version=None):
        """The files of an image's recipe, by path, and the folder's other recipes."""
        image = catalogue.load(only=[name])[0]
        with tempfile.TemporaryDirectory() as folder:
            recipes.write(image, image.version(version), folder)
            found = {}
            top = os.path.join(folder, image.built_as(version))
            for directory, _, names in os.walk(top):
                for entry in names:
                    path = os.path.join(directory, entry)
                    with open(path) as file:
                        found[os.path.relpath(path, top)] = (file.read(), os.access(path, os.X_OK))
            return found, sorted(os.listdir(folder))

    def test_every_image(self):
        """Scripts that the shell can read, and a layer for each."""
        for image in catalogue.load(large=True):
            for version in [] if image.recipe else image.versions:
                with self.subTest(image.name, version=version):
                    files, _ = self.written(image.name, version)
                    script, executable = files["prepare"]
                    self.assertTrue(executable)
                    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
                    text = files["Containerfile"][0]
                    self.assertNotIn("{version}", text + script)
                    final = text[text.rindex("\nFROM ") if "\nFROM " in text else 0 :]
                    self.assertEqual(sum(line.startswith(("RUN ", "COPY ")) for line in final.split("\n")), len(image.layers))

    def test_versions_differ_in_their_artefacts_only(self):
        old, new = (self.written("django", version)[0] for version in ("4.2.16", "5.1.4"))
        self.assertEqual(old["prepare"][0].replace("django==4.2.16", "django==5.1.4"), new["prepare"][0])
        self.assertEqual({**old, "prepare": 0}, {**new, "prepare": 0})

    def test_what_it_is_based_on_is_written_too(self):
        files, folders = self.written("rust")
        self.assertEqual(folders, ["bench-gcc", "bench-rust"])
        self.assertEqual(files["needs"][0], "bench-gcc\n")
        self.assertTrue(files["Containerfile"][0].startswith("FROM localhost/xebec-test/bench-gcc\n"))

    def test_files(self):
        files, _ = self.written("ci")
        job, executable = next(found for path, found in files.items() if path.endswith("/usr/local/bin/job"))
        self.assertTrue(executable and job.startswith("#!/bin/sh\n"))
        command = [line for line in files["Containerfile"][0].split("\n") if line.startswith("CMD ")]
        self.assertEqual([json.loads(line.removeprefix("CMD ")) for line in command], [["/usr/local/bin/job"]])


if __name__ == "__main__":
    unittest.main()
