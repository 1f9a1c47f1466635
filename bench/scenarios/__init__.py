"""The scenarios of the papers, which `make bench-scenarios` measures, one file each. A new one is a class like
`base.Scenario` in a module that is named here."""

import importlib

# Modules of this package; each has a class of the same name with a capital. In the order in which they run.
NAMES = ["deployment", "development", "update", "batch", "memcached", "training", "throughput"]
# Of the catalogue; each scenario takes those that it is about. SMALL=1 takes the first one of each.
IMAGES = {
    "deployment": ["nginx", "redis", "python", "postgres"],
    "development": ["nginx", "python", "express"],
    "update": ["flask", "tomcat"],
    "batch": ["nginx", "postgres"],
    "memcached": ["memcached"],
    "training": ["scipy"],
    "throughput": ["nginx", "redis", "postgres"],
}


def images(name, small, only=()):
    """Names of the images of a scenario. `only`: these, if it can do with them."""
    return list(only) or IMAGES[name][: 1 if small else None]


def load(name):
    """The class."""
    return getattr(importlib.import_module(f"scenarios.{name}"), name.capitalize())
