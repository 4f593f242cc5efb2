"""`python -m flopcast`."""

from flopcast.cli.main import main

if __name__ == "__main__":
    main()
