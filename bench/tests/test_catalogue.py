"""Files of the catalogue that are wrong are told by file and key, and the catalogue itself is right."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import catalogue

TASK = '[task]\nkind = "output"\ntext = "hello"\n'
BUILT = 'category = "language"\nbase = "debian"\ncommand = ["true"]\n{more}' + TASK + '[[layer]]\n{layer}\n'


def built(layer='apt = ["gcc"]', more=""):
    return BUILT.format(layer=layer, more=more)


class Wrong(unittest.TestCase):
    def load(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name.replace("_", "-") + ".toml"), "w") as file:
                    file.write(text)
            return catalogue.load(folder=folder)

    def refused(self, *says, **files):
        with self.assertRaises(catalogue.Wrong) as caught:
            self.load(**files)
        for text in says:
            self.assertIn(text, str(caught.exception))

    def test_what_is_right_is_read(self):
        one = self.load(one=built('pip = ["django=={version}"]\nto = "/x"', 'versions = ["4.2", "5.0"]\n'))[0]
        self.assertEqual((one.name, one.version(), one.built_as("4.2")), ("one", "5.0", "bench-one-4.2"))
        self.assertTrue(one.task.ends)

    def test_keys(self):
        self.refused("a.toml: colour", a='colour = "red"\n' + built())
        self.refused("a.toml: layer 1: x", a=built('run = "true"\nx = 1'))
        self.refused("a.toml: task: port", a=built().replace('text = "hello"', 'text = "hello"\nport = 1'))
        self.refused("a.toml: category", "is missing", a=built().replace('category = "language"', ""))
        self.refused("a.toml: category", "'fruit' is none of", a=built().replace('"language"', '"fruit"'))
        self.refused("a.toml: small", "of type bool", a="small = 1\n" + built())
        self.refused("a.toml: base", "is missing", a=built().replace('base = "debian"', ""))
        self.refused("a.toml: command", a=built().replace('command = ["true"]', ""))
        # TOML's own errors, such as a key that is there twice.
        self.refused("a.toml: ", "overwrite", a='category = "other"\n' + built())

    def test_tasks(self):
        answer = 'kind = "answer"\nprotocol = "{}"\nport = {}'
        task = 'kind = "output"\ntext = "hello"'
        self.refused("a.toml: task: protocol", "gopher", a=built().replace(task, answer.format("gopher", 70)))
        self.refused("a.toml: task: port", "70000", a=built().replace(task, answer.format("redis", 70000)))
        self.refused("a.toml: task: text", "is missing", a=built().replace(task, answer.format("http", 80)))
        self.refused("a.toml: task: text", "is empty", a=built().replace('"hello"', '""'))
        self.refused("a.toml: task: kind", a=built().replace('"output"', '"hope"'))

    def test_versions(self):
        self.refused("a.toml: layer 1: pip: 'django' has no version", a=built('pip = ["django"]\nto = "/x"'))
        self.refused("a.toml: layer 1: npm", "has no version", a=built('npm = ["@scope/express"]\nto = "/x"'))
        self.refused("a.toml: layer 1: maven", "has no version", a=built('maven = ["group:name:tar.gz"]\nto = "/x"'))
        self.refused("a.toml: layer 1: go", "has no version", a=built('go = ["golang.org/toolchain"]\nto = "/x"'))
        self.refused("a.toml: versions", "both, or neither", a=built('pip = ["x=={version}"]\nto = "/x"'))
        self.refused("a.toml: versions", "both, or neither", a=built(more='versions = ["1", "2"]\n'))
        self.refused("a.toml: versions", "twice", a=built(more='versions = ["1", "1"]\n'))
        self.refused("a.toml: versions", "no tag may have", a=built(more='versions = ["1/2"]\n'))
        image = self.load(a=built('pip = ["x=={version}"]\nto = "/x"', 'versions = ["1", "2"]\n'))[0]
        with self.assertRaises(catalogue.Wrong):
            image.built_as("3")

    def test_layers(self):
        self.refused("a.toml: layer 1: a layer is one of", "apt, run", a=built('apt = ["x"]\nrun = "true"'))
        self.refused("a.toml: layer 1: a layer is one of", "none", a=built(""))
        self.refused("a.toml: layer 1: apt: is empty", a=built("apt = []"))
        self.refused("a.toml: layer 1: apt: must be a list of texts", a=built("apt = [1]"))
        self.refused("a.toml: layer 1: to", "is missing", a=built('pip = ["x==1"]'))
        self.refused("a.toml: layer 1: files", "no absolute path", a=built('files = {"../x" = "y"}'))

    def test_what_one_file_cannot_tell(self):
        self.refused("there is no scripts/images/absent", a='category = "other"\nrecipe = "absent"\n' + TASK)
        recipe = 'category = "other"\nrecipe = "nginx"\n' + TASK
        self.refused("would be built as nginx", a=recipe, b=recipe)
        versioned = built('pip = ["x=={version}"]\nto = "/x"', 'versions = ["1", "2"]\n')
        self.refused("would be built as bench-a-2", a=versioned, a_2=built())
        self.refused("base: 'fedora'", a=built().replace('"debian"', '"fedora"'))
        self.refused("is based on", a=built().replace('"debian"', '"b"'), b=built().replace('"debian"', '"a"'))
        self.refused("b has several versions", a=built().replace('"debian"', '"b"'), b=versioned)


class Catalogue(unittest.TestCase):
    """What the benchmark promises of its images."""

    def test_images(self):
        images = catalogue.load(large=True)
        self.assertGreaterEqual(len(images), 24)
        self.assertEqual({image.category for image in images}, set(catalogue.CATEGORIES))
        self.assertGreaterEqual(sum(len(image.versions) >= 3 for image in images), 4)
        self.assertEqual({image.task.kind for image in images}, {"answer", "line", "output"})
        # In the order of categories.
        places = [catalogue.CATEGORIES.index(image.category) for image in images]
        self.assertEqual(places, sorted(places))

    def test_small(self):
        small = catalogue.load(small=True)
        self.assertEqual(len(small), 6)
        self.assertEqual({image.category for image in small}, set(catalogue.CATEGORIES))
        self.assertLessEqual({"nginx", "redis"}, {image.name for image in small})

    def test_large_and_only(self):
        self.assertNotIn("torch", [image.name for image in catalogue.load()])
        self.assertEqual([image.name for image in catalogue.load(only=["torch", "redis"])], ["redis", "torch"])
        with self.assertRaises(catalogue.Wrong):
            catalogue.load(only=["absent"])


if __name__ == "__main__":
    unittest.main()
