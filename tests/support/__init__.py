"""Code that several folders of tests share. `tests/README.md` says what each folder holds."""
