"""`python -m flower_pca`, the command by another name."""

from flower_pca.cli import console

if __name__ == "__main__":
    console()
