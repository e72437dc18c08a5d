"""The command `considerate serve`."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from considerate.cli import screen
from considerate.cli.options import OptionGroup, expand_groups, option
from considerate.cli.refit import HOW, How
from considerate.errors import UsageError

if TYPE_CHECKING:
    from considerate.service.settings import ServiceSettings

FEW_FILES = 1_024  # file handles; each connection takes one
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
ORIGIN = re.compile(r"\*|https?://[^/?#\s]+")


class Listening(OptionGroup, panel="Address and processes"):
    host: str = option("The address to listen at; 0.0.0.0 is every network of this machine.", "127.0.0.1")
    port: int = option("The port.", 8000)
    workers: int = option("Number of processes; they share the mapped model file and the events.", 1)

    @property
    def address(self) -> str:
        """URL of the page."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"


class Serving(OptionGroup, panel="Model and events"):
    events: str | None = option("Store new likes in this SQLite file; it is created if it does not exist.", None)
    demo: bool = option("In place of MODEL simulate a catalogue, fit it, and serve it with events.", False)
    browser: bool = option(
        "With --demo open the page in a browser, if there is a desktop.", True, "--browser/--no-browser"
    )
    poll: float = option("Seconds between checks for a new model at the path.", 1.0)
    refit_every: float | None = option(
        "Put the events into the model every so many seconds, in a separate process, like `considerate refit`.", None
    )
    refit_how: How = option(HOW, How.fit)


class Protection(OptionGroup, panel="Access and limits"):
    api_key_file: str | None = option(
        "A file with the key that clients must send, or with lines SCOPE:KEY: serve may ask and store events, history "
        "may read and erase them, admin may reload the model.",
        None,
    )
    allow_host: list[str] | None = option(
        "Without a key, also answer to this host name; may be repeated. IP addresses, localhost and --host are always "
        "allowed.",
        None,
    )
    cors_origin: list[str] | None = option(
        "Allow web pages of this origin, such as https://shop.example; may be repeated. None are allowed if not given.",
        None,
    )
    rate_limit: float = option("Requests per second from one address, in each worker; 0 is no limit.", 0.0)
    max_body: int = option("Largest body of a request, in bytes.", 1_000_000)
    timeout: float = option("Seconds a request may take to send its body, and to be answered.", 10.0)
    access_log: bool = option("Log every request, without ids of users or items.", False)


@expand_groups
def serve(
    listening: Listening,
    serving: Serving,
    protection: Protection,
    model: Annotated[
        str | None, typer.Argument(help="The model file, or the folder of a model in shards. A new one is loaded.")
    ] = None,
) -> None:
    """Serve a model over HTTP: recommendations, reasons, search, and events that count at once.

    / is a page to try the model, and /docs lists every address. Needs the packages of the extra `serve`.
    """
    _check_options(model, listening, serving, protection)
    try:
        from considerate.service.settings import ServiceSettings
        from considerate.service.workers import run_workers
    except ImportError as error:
        raise UsageError(f"serve needs {error.name}; install it: pip install 'considerate[serve]'.") from error
    with _temporary_folder() as folder:
        path, events = (model, serving.events) if model is not None else _fit_demo(folder, serving.events)
        settings = ServiceSettings(
            model=os.path.abspath(path) if "://" not in path else path,
            events=events,
            api_key_file=protection.api_key_file,
            allowed_hosts=(listening.host, *(protection.allow_host or ())),
            cors_origins=tuple(protection.cors_origin or ()),
            max_body=protection.max_body,
            rate=protection.rate_limit,
            timeout=protection.timeout,
            poll=serving.poll,
            access_log=protection.access_log,
            waits=listening.workers > 1,
        )
        _check_start(settings, listening)
        refits = _refit_process(settings, serving)
        settings.to_environment()
        if listening.workers > 1 or serving.refit_every is not None:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = os.path.join(folder, "metrics")
            os.mkdir(os.environ["PROMETHEUS_MULTIPROC_DIR"])
        screen.say("note", f"serving at {listening.address} until Ctrl-C")
        if serving.demo and serving.browser and has_desktop():
            threading.Thread(target=open_page, args=(listening.address,), daemon=True).start()
        with refits:
            run_workers(listening.host, listening.port, listening.workers)


def _check_options(model: str | None, listening: Listening, serving: Serving, protection: Protection) -> None:
    """Raise UsageError if an option is impossible, or two do not go together."""
    if (model is None) != serving.demo:
        raise UsageError("there is nothing to serve, or too much: give MODEL, or --demo.")
    if not listening.host:
        raise UsageError("--host is empty; give an address, such as 127.0.0.1, or 0.0.0.0 for every network.")
    if listening.workers < 1 or not 0 < listening.port < 65_536:
        raise UsageError(f"--workers is {listening.workers} and --port is {listening.port}; give possible numbers.")
    for group, name in ((serving, "poll"), (serving, "refit_every"), (protection, "timeout"), (protection, "max_body")):
        value = getattr(group, name)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be a number above 0.")
    if not 0 <= protection.rate_limit < math.inf:
        raise UsageError(f"--rate-limit is {protection.rate_limit}; it must be a number above 0, or 0 for no limit.")
    for name in protection.allow_host or ():
        if not HOST_NAME.fullmatch(name):
            raise UsageError(f"--allow-host is {name!r}; give a name without scheme, port and path: shop.example.")
    for origin in protection.cors_origin or ():
        if not ORIGIN.fullmatch(origin):
            raise UsageError(f"--cors-origin is {origin!r}; give scheme and host without a path: https://shop.example.")
    if serving.refit_every is not None and serving.events is None and not serving.demo:
        raise UsageError("--refit-every puts events into the model; give --events as well.")


def _check_start(settings: ServiceSettings, listening: Listening) -> None:
    """Raise an error, or warn, before any process is started."""
    import resource

    from considerate.model.file import load_model
    from considerate.service.events import EventStore
    from considerate.service.metrics import Metrics
    from considerate.service.workers import check_address

    check_address(listening.host, listening.port)
    load_model(settings.model)
    if settings.events is not None:
        EventStore(settings.events, Metrics()).close()  # created here, so that workers do not race to create it
    if settings.keys() is None and listening.host not in ("127.0.0.1", "::1", "localhost"):
        screen.say(
            "warning",
            f"anyone who reaches {listening.host} can ask, and store, read and erase events; see --api-key-file.",
        )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if 0 <= hard < FEW_FILES:
        screen.say("warning", f"this process may open {hard} files, one per connection; raise `ulimit -n`.")


def _refit_process(settings: ServiceSettings, serving: Serving) -> AbstractContextManager[None]:
    """Return the block in which a process refits the model; without --refit-every an empty block."""
    from considerate.service.refit_loop import RefitLoop

    if serving.refit_every is None:
        return nullcontext()
    assert settings.events is not None
    loop = RefitLoop(settings.model, os.path.abspath(settings.events), serving.refit_every, serving.refit_how.value)
    loop.check()
    return loop.running()


def has_desktop() -> bool:
    """Return whether a person at a screen started this program."""
    shown = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return shown and sys.stderr.isatty()


def open_page(address: str, tries: int = 300) -> None:
    """Open the page of a service in a browser as soon as it answers."""
    import urllib.request
    import webbrowser

    for _ in range(tries):
        with suppress(OSError):
            urllib.request.urlopen(f"{address}health/live").close()
            webbrowser.open(address)
            return
        time.sleep(0.1)


def _fit_demo(folder: str, events: str | None) -> tuple[str, str]:
    """Fit a simulated catalogue; return the paths of (model, events).

    Without a file of events, make one in which some people considered more films after the fit. The page then shows how
    honest p(like) is.
    """
    from considerate.cli.demo_catalogue import make_catalogue, seen_later
    from considerate.recommender import Recommender
    from considerate.service.events import EventStore, NewEvent
    from considerate.service.metrics import Metrics

    screen.say("note", "simulating a catalogue of films and 4,000 people, and fitting it: some seconds")
    path = os.path.join(folder, "demo.safetensors")
    likes, later = seen_later(make_catalogue(4_000), people=200)
    Recommender(factors=8, sweeps=20).fit(likes).save(path)
    if events is None:
        events = os.path.join(folder, "events.db")
        store = EventStore(events, Metrics())
        kinds = {True: "like", False: "considered"}
        store.append(
            [NewEvent(str(user), str(item), kinds[liked], None) for user, item, liked in later], lambda *_: None
        )
        store.close()  # waits until all is stored
    return path, events


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Folder for files of this run, removed at the end; SIGTERM also removes it."""
    folder = tempfile.mkdtemp(prefix="considerate-serve-")
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
