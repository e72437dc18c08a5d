"""The model behind HTTP: `considerate serve`, with the extra `considerate[serve]`.

app.py        the ASGI application: limits, keys, routes, answers
access.py     keys with scopes, the names that the service answers to, origins of pages
schemas.py    what is asked and answered, as msgspec structs; openapi.py makes the document of them
threads.py    lanes for what takes long, made in steps that can be ended
state.py      the model that is served, and how another takes its place
scoring.py    one call of the kernel for all requests that wait
landscape.py  the items that any setting of the knobs can bring up
events.py     likes as they come, in SQLite
refit.py      a new model from the likes and the events, judged against the old one; event_likes.py has the likes
refit_loop.py refits again and again, in a process beside the service
problems.py   errors (RFC 9457)
protocol.py   HTTP/1.1 with deadlines, for uvicorn
page/         the page at /

Nothing here is imported before a service is started: the packages of the extra are not needed elsewhere.
"""
