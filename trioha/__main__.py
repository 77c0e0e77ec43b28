"""`python -m trioha`: the command line, without an installed script."""

from trioha.cli import main

if __name__ == "__main__":
    main()
