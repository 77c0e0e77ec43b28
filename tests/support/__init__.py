"""What tests share, by purpose; `tests/README.md` says which folder has what."""
