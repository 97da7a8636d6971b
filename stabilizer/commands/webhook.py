"""`stabilizer webhook RUNS`: accept signed answers to proposals over the network, as files in `requests/`."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os

from stabilizer.commands.shared import add_runs_argument, runs_folder
from stabilizer.core.text import spoken
from stabilizer.live.webhook import MAX_BODY, SECRET_ENV, WINDOW_S, Answers, Server, checked_secret

EXAMPLE = """\
To sign and send an answer, put the shared secret in $SECRET and the `answer` of the notification in $body:
  t=$(date +%s); n=$(openssl rand -hex 16)
  s=$(printf '%s.%s.%s' "$t" "$n" "$body" | openssl dgst -sha256 -hmac "$SECRET" -r | cut -d' ' -f1)
  curl -d "$body" -H "Stabilizer-Timestamp: $t" -H "Stabilizer-Nonce: $n" \\
       -H "Stabilizer-Signature: sha256=$s" http://127.0.0.1:8060/answer
`stabilizer watch RUN --notify URL --answer-at URL` sends the proposals; with the same secret in its environment it adds
links that show a page with a button to approve or reject, valid for a day. Put TLS in front of any address other than
loopback: messages are signed but not encrypted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLE
    add_runs_argument(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8060, help="port; 0 picks a free one (default: %(default)s)")
    parser.add_argument(
        "--secret-env",
        default=SECRET_ENV,
        metavar="NAME",
        help="environment variable with the secret (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Listen until Ctrl-C."""
    folder = runs_folder(args)
    secret = checked_secret(os.environ.get(args.secret_env, ""), args.secret_env)

    def report(line: str) -> None:
        print(json.dumps({"kind": "answer", "said": line}) if args.json else line, flush=True)

    with Server(Answers(folder, secret), args.host, args.port, report) as server:
        port = server.server_address[1]
        url = f"http://{args.host}:{port}/answer"
        if args.json:
            print(json.dumps({"kind": "listening", "url": url}), flush=True)
        else:
            print(
                f"listening on {url}: signed messages of at most {MAX_BODY} bytes, at most {spoken(WINDOW_S)} old",
                flush=True,
            )
            if not _loopback(args.host):
                print(
                    "this address is not loopback: put TLS in front, because messages are not encrypted",
                    flush=True,
                )
        server.serve_forever()
    return 0


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
