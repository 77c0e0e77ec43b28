"""The rig for real processes: starting, waiting, stopping, what each said last; their hosts, their
faults, and what they answer to an operator. It knows trioha's nodes and no other make.
"""
