"""A master, its slaves, a name server and operators, made of the cores of real nodes."""
