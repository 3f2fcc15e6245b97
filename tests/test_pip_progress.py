"""`make spark` shows what it downloads."""

from tools.pip_progress import main, steps


def test_downloads_are_reported_with_their_size() -> None:
    said = [
        "Collecting pyspark==4.2.0 (from -r requirements/spark.lock (line 1))\n",
        "  Downloading https://example.org/a/b/pyspark-4.2.0.tar.gz (434.2 MB)\n",
        "  Downloading numba-0.61.0-cp311-cp311-manylinux2014_x86_64.whl.metadata (2.8 kB)\n",
        "Building wheels for collected packages: pyspark\n",
        "Installing collected packages: py4j, pyspark\n",
        "Successfully installed pyspark-4.2.0\n",
    ]
    assert list(steps(said)) == [
        "downloading pyspark-4.2.0.tar.gz (434.2 MB)",
        "downloading numba-0.61.0-cp311-cp311-manylinux2014_x86_64.whl.metadata (2.8 kB)",
        "building wheels for collected packages",
        "installing collected packages",
    ]


def test_pip_takes_its_arguments() -> None:
    assert main(["install", "--dry-run", "pip"]) == 0
