"""``tablectl serve-catalog``: a catalog as a read-only Iceberg REST endpoint."""

from __future__ import annotations

import click

from plait.catalog.rest import IcebergRest
from plait.catalog.server import CatalogServer, Listening
from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.commands.catalogs import open_catalog
from plait.cli.stopping import Stopping
from plait.cli.view import Facts

_DEFAULTS = Listening()
_FILE = click.Path(dir_okay=False)


@command(
    "serve-catalog",
    "serve-catalog ./lake",
    "serve-catalog ./lake --host 0.0.0.0 --token-file token --certificate cert.pem --key key.pem",
)
@click.option("--host", default=_DEFAULTS.host, show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=_DEFAULTS.port,
    show_default=True,
    help="Port to listen at; 0 for a free one.",
)
@click.option("--token-file", type=_FILE, help="File with the token that clients must show.")
@click.option("--certificate", type=_FILE, help="File of the server's certificate, for TLS.")
@click.option("--key", type=_FILE, help="File of its private key.")
@click.option("--no-publish", is_flag=True, help="Only show what is published, and write nothing.")
def serve_catalog(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    host: str,
    port: int,
    token_file: str | None,
    certificate: str | None,
    key: str | None,
    no_publish: bool,
) -> None:
    """Serve a catalog to engines that read Iceberg, until it is stopped.

    It shows the tables whose property publish names iceberg, and changes no name and no row. An
    address that other machines can reach needs a token and TLS. SIGTERM or SIGINT ends it.
    """
    listening = Listening(host, port, token_file, certificate, key)
    stopping = Stopping()
    with stopping.at_once():
        token = listening.token()
        catalog = open_catalog(app, uri, storage)
        server = CatalogServer(IcebergRest(catalog, token=token, publish=not no_publish), listening)
    with server:
        app.note(f"serving {uri} at {server.url}")
        stopping.asked.wait()
    data = {"url": server.url, "requests": server.answered}
    app.show(data, Facts((("url", server.url), ("requests", server.answered))))
