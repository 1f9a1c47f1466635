"""Tables and figures of results files: Markdown to standard output, and one HTML file that needs nothing else."""

import argparse
import os
import sys

from reporting import page, results, tables

EXAMPLES = """\
docs/bench-report.md describes what is in the report, bench/results/README.md the files that it is made of.

status: 0 it was made, 2 the command or a file is wrong

examples:
  python3 bench/report.py hello.json                                # the tables, as Markdown
  python3 bench/report.py --html out/report.html hello.json         # and the page
  python3 bench/report.py --html out/report.html hello.json scenarios        # of a folder: all that ends in .json
  make bench-report FILES="hello.json batch.json"                   # the same, at out/report.html
"""


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="report.py", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="results of starts or of a scenario, or a folder of them")
    parser.add_argument("--html", metavar="PATH", help="where the page goes; its folder is made")
    parser.add_argument("--title", default="Container starts, compared", help="of the page (%(default)s)")
    return parser.parse_args(arguments)


def found_in(path):
    """The results in a folder, by name; a file is itself."""
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith(".json"))
    if not names:
        raise results.Bad(f"{path}: no file in it ends in .json")
    return [os.path.join(path, name) for name in names]


def write(path, text):
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def main(arguments=None):
    asked = options(arguments)
    try:
        files = [results.load(path) for given in asked.files for path in found_in(given)]
        if asked.html:
            write(asked.html, page.page(files, asked.title))
    except results.Bad as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"report.py: {asked.html}: {error.strerror}", file=sys.stderr)
        return 2
    print("\n\n".join(tables.markdown(found) for found in files), flush=True)
    if asked.html:
        print(f"\n{asked.html} written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
