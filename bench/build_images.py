"""Builds the images of the catalogue, all but the large ones, and says what came out: `make bench-images`.

    build_images.py [--small] [--large] [--check] [NAME...]

Each version of each image is built by scripts/images/build.sh, unless it is there already and nothing of it has changed. One that
fails is FAILED by name, the others go on, and the status is 1. The digest of its manifest is kept beside a layout, in the file
`digest`. --check starts each as check_images.py says.
"""

import argparse
import json
import os
import subprocess
import sys

import catalogue
import check_images
import recipes

RECIPES = os.path.join(catalogue.built(), "recipes")


def text_of(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def manifest(image, version):
    blob = image.digest(version).replace(":", "/")
    with open(os.path.join(image.layout(version), "blobs", blob)) as file:
        return json.load(file)


def build(image, version):
    """Builds one if need be; whether it is there then. What the build says goes to stderr."""
    recipes.write(image, version, RECIPES)
    note = os.path.join(image.layout(version), "digest")
    before = text_of(note)
    done = subprocess.run(
        [os.path.join(catalogue.RECIPES, "build.sh"), image.built_as(version)], env={**os.environ, "XEBEC_RECIPES": RECIPES},
    )
    name = f"{image.name} {version}".strip()
    if done.returncode != 0:
        print(f"FAILED {name}: it could not be built (log: {catalogue.built()}/logs/{image.built_as(version)}.log)", flush=True)
        return False
    digest, layers = image.digest(version), manifest(image, version)["layers"]
    with open(note, "w") as file:
        file.write(digest + "\n")
    changed = f", was {before}" if before not in ("", digest) else ""
    size = sum(layer["size"] for layer in layers)
    print(f"{image.category:13} {name:18} {len(layers):2} layers {size / 1e6:7.1f} MB  {digest}{changed}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description="Builds the images of bench/catalogue.")
    parser.add_argument("--small", action="store_true", help="only the subset of six")
    parser.add_argument("--large", action="store_true", help="the large ones, too")
    parser.add_argument("--check", action="store_true", help="start each, and prove its task")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these images")
    options = parser.parse_args()
    images = catalogue.load(options.small, options.names, options.large)
    for image in catalogue.load(large=True):
        if image.large and image not in images and not options.names and not options.small:
            print(f"SKIPPED {image.name}: it is large (LARGE=1)", flush=True)
    built = [(image, version) for image in images for version in image.versions if build(image, version)]
    failed = sum(len(image.versions) for image in images) - len(built)
    if options.check and built:
        if any(image.name == check_images.DECOY for image, _ in built) or build(catalogue.load(only=[check_images.DECOY])[0], ""):
            failed += check_images.isolated(built)
        else:
            failed += 1
    if failed:
        raise SystemExit(f"{failed} failed")


if __name__ == "__main__":
    try:
        main()
    except catalogue.Wrong as error:
        sys.exit(f"bench/catalogue: {error}")
