"""A broker of a master-slave set."""
