"""Stop the broker that decides where groups go, and see where the messages of a new group go.

``python repeat.py HOME [stop|kill]``: HOME is an unpacked Artemis. After "stop" (SIGSTOP) the
broker goes on in the end, after "kill" it is started again. Ports 62613 to 62617 must be free.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STOMP = {"n1": 62613, "n2": 62614}
SUBSCRIBE = b"SUBSCRIBE\nid:0\ndestination:orders\nsubscription-type:ANYCAST\nack:client-individual\n\n\0"
CREATE = ("--silent", "--user=a", "--password=a", "--allow-anonymous", "--no-autotune", "--no-web")
home, kills, directory = Path(sys.argv[1]), sys.argv[2:] == ["kill"], Path(tempfile.mkdtemp())


def configuration(name, other, core, kind, timeout_ms):
    """Return broker.xml of a node: a cluster of two, with a grouping handler."""
    return f"""<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>{name}</name><security-enabled>false</security-enabled>
<connectors><connector name="n1">tcp://127.0.0.1:62616</connector>
<connector name="n2">tcp://127.0.0.1:62617</connector></connectors>
<acceptors><acceptor name="core">tcp://127.0.0.1:{core}?protocols=CORE</acceptor>
<acceptor name="stomp">tcp://127.0.0.1:{STOMP[name]}?protocols=STOMP</acceptor></acceptors>
<cluster-user>c</cluster-user><cluster-password>c</cluster-password>
<cluster-connections><cluster-connection name="c"><connector-ref>{name}</connector-ref>
<static-connectors><connector-ref>{other}</connector-ref></static-connectors></cluster-connection>
</cluster-connections>
<grouping-handler name="g"><type>{kind}</type><timeout>{timeout_ms}</timeout></grouping-handler>
<addresses><address name="orders"><anycast><queue name="orders"/></anycast></address></addresses>
</core></configuration>"""


def start(name):
    """Start a broker, with its log in the directory of this try."""
    place = directory / name
    if not place.exists():
        subprocess.run([home / "bin/artemis", "create", place, *CREATE], check=True, stdout=subprocess.DEVNULL)
        own = ("n2", 62616, "LOCAL", 1000) if name == "n1" else ("n1", 62617, "REMOTE", 500)
        (place / "etc/broker.xml").write_text(configuration(name, *own))
    with (directory / f"{name}.log").open("a") as log:
        return subprocess.Popen([place / "bin/artemis", "run"], stdout=log, stderr=log, start_new_session=True)


def connect(name, *frames):
    """Return a STOMP connection to a node, when it serves, on which these frames were sent."""
    client = socket.socket()
    while client.connect_ex(("127.0.0.1", STOMP[name])):
        time.sleep(0.5)
    client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    assert client.recv(9999).startswith(b"CONNECTED")
    client.sendall(b"".join(frames))
    return client


def received(consumer):
    """Return the bodies of the messages that a consumer got since it was last asked."""
    consumer.settimeout(1)
    try:
        data = consumer.recv(99999)
    except TimeoutError:
        return []
    return re.findall(r"\n\n(\w+)\0", data.decode()) + received(consumer)


def send(body, *headers):
    """Send a message to n2; return what it answers, and after how many seconds."""
    begun, fixed = time.monotonic(), ("destination:orders", "destination-type:ANYCAST", "receipt:1")
    producer.sendall("\n".join(["SEND", *fixed, *headers, "", body]).encode() + b"\0")
    return f"{producer.recv(9999).split()[0].decode()} after {time.monotonic() - begun:.1f} s"


brokers = {name: start(name) for name in STOMP}
try:
    consumers, producer, formed = {name: connect(name, SUBSCRIBE) for name in STOMP}, connect("n2"), set()
    while formed != {"n1", "n2"}:  # until the cluster gives messages to both
        send("warm")
        formed |= {name for name, consumer in consumers.items() if received(consumer)}
    os.killpg(brokers["n1"].pid, signal.SIGKILL if kills else signal.SIGSTOP)
    for body in ("b0", "b1", "b2"):
        print(f"n1 does not run; {body} is sent to n2: {send(body, 'JMSXGroupID:b')}", flush=True)
    if kills:
        brokers["n1"], consumers["n1"] = start("n1"), connect("n1", SUBSCRIBE)
    os.killpg(brokers["n1"].pid, signal.SIGCONT)
    time.sleep(8)
    for body in ("b3", "b4"):
        print(f"n1 runs again; {body} is sent to n2: {send(body, 'JMSXGroupID:b')}", flush=True)
    for name, consumer in consumers.items():
        print(f"the consumer at {name} holds:", *(body for body in received(consumer) if body != "warm"))
finally:
    for broker in brokers.values():
        os.killpg(broker.pid, signal.SIGKILL)
    print(f"logs: {directory}")
