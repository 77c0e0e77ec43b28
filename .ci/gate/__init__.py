"""The gate that every push passes, and the campaigns before a release: `.ci/run`.

`plan` lists what is run, `prepare` sets a machine up, `running` runs commands within limits,
`steps` carries out the plan, `junit` reads what pytest reports, `timings` compares it with last
time, `passed` remembers which parts of a release have passed. Standard library only: the package
runs before anything is installed.
"""
