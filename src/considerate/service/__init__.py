"""The model behind HTTP: `considerate serve`, with the extra `considerate[serve]`.

app.py         the ASGI application: limits, keys, routes, answers
access.py      keys with scopes, allowed host names, origins of pages
schemas.py     requests and answers as msgspec structs; openapi.py describes them
threads.py     lanes for slow work
state.py       the served model, and its replacement by a new one
scoring.py     one call of the kernel for all waiting requests
landscape.py   the items that some setting of the knobs can bring up
events.py      events of users, in SQLite
refit.py       a new model from the likes and the events, compared with the old one; event_likes.py has the likes
refit_loop.py  repeated refits, in a separate process
problems.py    errors (RFC 9457)
protocol.py    HTTP/1.1 with deadlines, for uvicorn
page/          the page at /

Only a service imports this room, so other commands do not need the packages of the extra.
"""
