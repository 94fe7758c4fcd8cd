"""Run the `flower-pca` command as `python -m flower_pca`."""

from flower_pca.cli import console

if __name__ == "__main__":
    console()
