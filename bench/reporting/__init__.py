"""What results files of the benchmarks say, as tables and figures, and whether two of them differ: `bench/report.py` and
`bench/compare.py` are its programs. Python's standard library only, and no state of the host: results of any machine can be
read on any other.
"""
