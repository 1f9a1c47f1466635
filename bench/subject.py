"""An image of the catalogue in one of its versions: what is published, pulled and started."""

import json
import os


class Subject:
    """`version`: the newest if it is not said."""

    def __init__(self, image, version=None):
        self.image = image
        self.version = image.versions[-1] if version is None else version

    @property
    def name(self):
        return self.image.name

    @property
    def repository(self):
        """Where it is in a registry, with all its versions: what a host knows by one of them holds for the next."""
        return self.name

    @property
    def tag(self):
        """What is made of an image stays right when another one of its name was built."""
        return f"{self.version or 'latest'}-{self.digest.rpartition(':')[2][:12]}"

    @property
    def layout(self):
        return self.image.layout(self.version)

    @property
    def digest(self):
        return self.image.digest(self.version)

    @property
    def task(self):
        return self.image.task

    @property
    def arguments(self):
        return self.image.arguments

    @property
    def before(self):
        """The version before this one, or `None`."""
        place = self.image.versions.index(self.version)
        return Subject(self.image, self.image.versions[place - 1]) if place else None

    @property
    def layers(self):
        """Compressed sizes."""
        algorithm, _, name = self.digest.partition(":")
        with open(os.path.join(self.layout, "blobs", algorithm, name)) as file:
            return [layer["size"] for layer in json.load(file)["layers"]]

    @property
    def size(self):
        return sum(self.layers)

    def __str__(self):
        return f"{self.name} {self.version}".rstrip()
