# `just` lists these. They need the virtual environment: `just setup`.

set shell := ["bash", "-euo", "pipefail", "-c"]
export PATH := justfile_directory() / ".venv/bin" + ":" + env("PATH")

# Show what there is.
list:
    @just --list --unsorted

# Make .venv with everything the checks need.
setup:
    test -d .venv || python3 -m venv .venv
    pip install -q -e '.[console,dev,spark]' -c constraints.txt

# Everything that must hold before a push.
check: fmt lint types imports
    pytest -q -n 2 --dist loadgroup -m "not slow and not interop"

# Format, and sort imports.
fmt:
    ruff format
    ruff check --fix-only --quiet --select I

# Style, types, direction of imports.
lint:
    ruff check

types:
    mypy

imports:
    lint-imports

# Tests: `just test`, `just test ha`, `just test ha -k cut`.
test package="" *options="":
    pytest -q -m "not slow and not interop" {{ if package == "" { "tests" } else { "tests/" + package } }} {{ options }}

# Tests with real processes under load.
slow *options="":
    pytest -q -m slow {{ options }}

# The campaigns at full size, before a tag; goes on where it was stopped: `just release --list`.
release *options="":
    .ci/run release {{ options }}

# Tag the commit, unless a part of the release has not passed for it: `just tag v1.2.0`.
tag name:
    .ci/run release --check
    git tag -a {{ name }} -m {{ name }}

# Keep the timings of the last runs as those that the next ones are compared with.
timings:
    .ci/run timings

# Branches that the gate's tests take, and a release's, into docs/testing.md: `just coverage --only quick members --tier gate`.
coverage *options="": pure
    PYTHONPATH=tests:.ci python tests/coverage_figures.py {{ options }}

# Screens of the console, transcripts of Raft and of roles, the table of docs/security.md, written anew: read the diff before you commit it.
rewrite:
    TRIOHA_REWRITE=1 pytest -q tests/console tests/dledger/test_transcripts.py tests/ha/test_role_machine.py tests/security/test_requirements.py

# A simulated replica set: `just sim 4711` shows one seed, `just sim 0:1000` runs many.
sim seeds="0:200" kind="pair":
    python -m trioha.sim {{ kind }} {{ seeds }}

# Fail real sets over under load: `just drill --rounds 100` is the release run, about a quarter of an hour.
drill *options="--rounds 10":
    PYTHONPATH=tests python -m failover_drills.drill {{ options }}

# Hurt Raft groups under load: `just raft-drill --rounds 1000` is the release run.
raft-drill *options="--rounds 30":
    PYTHONPATH=tests python -m raft_drills.drill {{ options }}

# How long a Raft group acknowledges nothing after its leader died, was cut off, or handed over.
raft-times *options="--trials 30":
    PYTHONPATH=tests python -m raft_drills.failover_times {{ options }}

# Compile the hot modules in place: the same sources, about twice as fast. `--trained`: see README.
compile *options="":
    python .ci/compile.py {{ options }}

# Wheels in dist/: pure, and compiled for each Python at hand, each tried in a fresh environment.
wheels *options="":
    python .ci/wheels.py {{ options }}

# The quick tests on each Python at hand, as plain Python and compiled: `just pythons --python /opt/python3.14/bin/python3.14`.
pythons *options="":
    python .ci/pythons.py {{ options }}

# Remove what `just compile` made.
pure:
    python .ci/compile.py --pure

# A replicated pair, proven on this machine.
demo *options="":
    trioha demo {{ options }}

# Measure: `just bench produce --help`.
bench *options="":
    trioha bench {{ options }}

# Rows of `trioha bench`, several rounds, into docs/benchmarks-appendix.md.
bench-figures *options="":
    PYTHONPATH=tests python tests/bench/figures.py {{ options }}

# Java's broker and trioha under the same loads, in turns: `just bench-peer --quick`, `--help`.
bench-peer *options="":
    PYTHONPATH=tests python -m bench.peer {{ options }}

# DLEDGER mode: Java's and ours in turns, kills, transfers, a refill: `just bench-raft --help`.
bench-raft *options="":
    PYTHONPATH=tests python tests/bench/bench_raft.py {{ options }}

# The first page of the benchmarks, from results that are there: `just bench-page --help`.
bench-page *options="":
    PYTHONPATH=tests python tests/bench/first_page.py {{ options }}

# What the machine allows a broker, a pair and a group at best: frames that nobody looks into.
bench-relay *options="":
    PYTHONPATH=tests python tests/bench/bench_relay.py {{ options }}

# What a message costs a master in one set and in two, each on a core of its own.
bench-sets *options="":
    PYTHONPATH=tests python tests/bench/bench_sets.py {{ options }}

# What a message costs each node: processor time, system calls, waits: `just bench-cost --rounds 3 --layout SYNC`.
bench-cost *options="":
    PYTHONPATH=tests python -m bench.cost {{ options }}

# Plain connections against TLS, in turns: `just bench-tls --pairs 9`.
bench-tls *options="":
    PYTHONPATH=tests python tests/bench/bench_tls.py {{ options }}

# Java's broker and trioha, and trioha unprotected, in turns: `just bench-secured --rounds 9`.
bench-secured *options="":
    PYTHONPATH=tests python tests/bench/bench_secured.py {{ options }}

# Another tree of trioha and this one under the same loads, in turns: `just bench-trees --before DIR --pairs 9`.
bench-trees *options="":
    PYTHONPATH=tests python tests/bench/bench_trees.py {{ options }}

# Where a master's processor time goes, as a picture: `just flame-graph --out after.svg`, `--tree DIR`; needs Linux's perf.
flame-graph *options="":
    PYTHONPATH=tests python tests/bench/flame_graph.py {{ options }}

# How long an old master takes to come back; with a drill's account: its table, into docs/benchmarks-appendix.md.
bench-failover *options="":
    PYTHONPATH=tests python tests/bench/bench_failover.py {{ options }}

# Big stores through `trioha analyze`, both engines, into docs/benchmarks-appendix.md; `--against DIR` compares with another tree; 20 minutes and 20 GB of disk.
bench-analysis *options="":
    PYTHONPATH=tests python tests/bench/bench_analysis.py {{ options }}

# Tests with real Java or Go peers; the first run fetches them.
interop *options="":
    pytest -q -m interop -n 2 --dist loadgroup {{ options }}

# Small faults in the sources, one by one, in a copy: the tests beside each have to notice it.
mutation-probe *options:
    python tests/mutation_probe.py {{ options }}

# Raft groups under drawn faults: `just sim-raft --from 0 --to 2000`, `just sim-raft --seed 616`.
sim-raft *options="":
    python -m trioha.sim.raft {{ options }}

# One of RocketMQ's layouts on loopback.
cluster layout="2m-2s-sync":
    trioha run cluster {{ layout }}

# Pages that are made from the code.
docs:
    trioha config keys -o markdown > docs/configuration.md

# Pictures in the docs, of an incident that is lived through for them; needs Chromium.
pictures:
    PYTHONPATH=tests python tests/analysis/pictures.py

# Pictures and transcript of docs/console.md, of an incident lived through; needs tmux and Chromium.
console-pictures:
    PYTHONPATH=tests:console python tests/console/pictures.py

# An operator's jobs in the console by a script, keys and seconds counted; needs tmux.
console-day:
    PYTHONPATH=tests:console python -m support.screens.console_day

# What the console costs with 100 brokers, 2,000 topics, 20,000 queues and 5,000 groups: `just bench-console 30 groups`.
bench-console *options="":
    PYTHONPATH=tests:console python tests/bench/bench_console.py {{ options }}

# What a console costs one of those brokers.
bench-watched *options="":
    PYTHONPATH=tests:console python tests/bench/bench_watched_broker.py {{ options }}
