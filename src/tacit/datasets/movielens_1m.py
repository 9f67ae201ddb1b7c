"""MovieLens 1M: the larger edition, read as `movielens_100k.py` says."""

from tacit.datasets.movielens_100k import Edition

# Films are numbered up to 3952, with gaps.
DATASET = Edition(
    "movielens-1m",
    "ratings.dat",
    "::",
    people=6_040,
    films=3_952,
    ratings=1_000_209,
    folder="ml-1m",
    sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
).dataset()
