"""An operator's jobs: topics, groups, messages, brokers, name servers, clients.

Theory of operation. A job is a generator as `trioha.failover.asking` describes: it yields requests
and is sent the answers. So the command line runs it on Trio (`trioha.client.driving`), the console
on asyncio, a test on fakes. A job that changes something has two halves: one makes the plan and
changes nothing, the other carries out that plan. What a job returns is a frozen class of plain
values: the JSON document that the command line prints, and its schema in `docs/schemas`.
"""
