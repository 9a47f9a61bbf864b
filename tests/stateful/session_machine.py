"""A STOMP session fed with valid and invalid frames, cut anywhere.

Its answers are those of the STOMP 1.2 specification.

Receipts come once each and in the order of their frames; an ERROR names the frame at fault and is
the last word; a transaction happens as a whole or not at all, whatever ends it; what is
acknowledged is gone, and everything else is where it was. The model is one client's view: what it
has sent so far, frame by frame.
"""

import random

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from stored import stored

from broker import config
from broker.core.engine import Engine
from broker.core.settings import EngineSettings
from broker.seams import Seams
from broker.stomp.server import StompServer
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.machines import LoopMachine
from stateful.session_view import Effect, Pending, View
from stateful.stomp_client import BROKEN, WRONG_FRAMES, WRONG_LOGINS, spell

SYNC_S = 0.01
WINDOW = 2
NOTES = st.text(st.sampled_from("ab:\\\n\r\u20ac "), max_size=5)

styles = st.integers(0, 15)
flips = st.booleans()
inside = st.sampled_from([None, 0, 0, 1])
names = st.sampled_from(["t1", "t2"])
subscriptions = st.sampled_from(["s1", "s:2"])
journeys = st.sampled_from(["all", "all", "all", "none", "one byte", "a few bytes"])
BYTES = {"all": 1_000_000, "none": 0, "one byte": 1, "a few bytes": 9}


class SessionMachine(LoopMachine):
    @initialize()
    def begin(self):
        self.config = config.validate(
            {
                "broker": {"name": "a1"},
                "address-settings": [{"match": "#", "max-delivery-attempts": -1}],
            }
        )
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.texts = 0
        self.names = 0
        self.logins = 0
        self.sure = []
        self.effects = []
        self.confirmed = {}
        self.notes = {}
        self.seen = set()
        self.start()
        self.log_in()

    def log_in(self):
        self.logins += 1
        mode = "client" if self.logins % 2 else "client-individual"
        self.connect(0)
        self.subscribe("s1", mode, 0, receipt=False, go="all")
        self.rest()

    def start(self):
        journal, recovered = self.loop.run(Journal.open(self.volume, "journal"))
        gate = DurabilityGate(journal.synced)
        settings = EngineSettings.of(self.config, "n1")
        with self.loop.inside():
            self.engine = Engine(
                journal, recovered, gate, settings, Seams(random.Random(journal.next_id()), lambda: 0.0)
            )
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        self.server = StompServer(self.config, self.engine)
        self.open()

    def open(self):
        with self.loop.inside():
            self.view = View(self.server._accept())
            self.view.protocol.connection_made(self.view.transport)

    # ---- the model of the store

    @property
    def stored(self):
        """What is in the queue once all is durable."""
        stored = self.sure
        for effect in self.effects:
            stored = effect.apply(stored)
        return stored

    def happens(self, effect, receipt=None):
        self.effects.append(effect)
        if receipt is not None:
            self.confirmed[receipt] = effect

    # ---- frames on their way

    def put(self, data, meaning):
        view = self.view
        view.frames.append(Pending(view.sent, view.sent + len(data), meaning))
        view.outbox += data
        view.sent += len(data)

    def say(self, command, headers, meaning, body=b"", style=0, receipt=False):
        """``meaning`` gets the receipt's name.

        It returns False where the frame is wrong by what came before.
        """
        name = None
        if receipt and command not in ("CONNECT", "STOMP"):  # these two may have none
            self.names += 1
            name = f"r:{self.names}" if self.names % 3 == 0 else f"r{self.names}"
            headers = {**headers, "receipt": name}
        self.put(spell(command, headers, body, style), lambda: self.understood(meaning, name))

    def understood(self, meaning, receipt):
        """A whole frame is there."""
        view = self.view
        if view.state not in ("new", "in"):
            return
        if meaning(receipt) is False:
            view.state = "wrong"
            view.fault = receipt
        elif receipt is not None:
            view.receipts.append(receipt)

    def logged_in(self, meaning):
        """Any frame but CONNECT is wrong before it."""
        return lambda receipt: meaning(receipt) if self.view.state == "in" else False

    def connect(self, style):
        def meaning(_):
            if self.view.state == "in":
                return False
            self.view.state = "in"
            return None

        self.say("CONNECT", {"accept-version": "1.1,1.2", "host": "h"}, meaning, style=style & 11)

    @rule(
        count=st.integers(1, 3),
        transaction=inside,
        style=styles,
        receipt=flips,
        note=NOTES,
        zero=flips,
        go=journeys,
    )
    def send(self, count, transaction, style, receipt, note, zero, go):
        self.come_back()
        for _ in range(count):
            self.say_send(self.view.named(transaction), style, note, zero=zero, receipt=receipt)
        self.arrive(go)

    def say_send(self, transaction, style, note, *, zero, receipt):
        self.texts += 1
        text = f"m{self.texts}" + ("\0tail" if zero else "")
        self.notes[text] = note
        headers = {"destination": "/queue/q", "note": note}

        def meaning(receipt):
            if transaction is None:
                self.happens(Effect([text]), receipt)
                return None
            opened = self.view.transactions.get(transaction)
            if opened is None:
                return False
            opened.added.append(text)
            return None

        if transaction is not None:
            headers["transaction"] = transaction
        self.say("SEND", headers, self.logged_in(meaning), text.encode(), style, receipt)

    @rule(
        name=subscriptions,
        mode=st.sampled_from(["client", "client-individual"]),
        style=styles,
        receipt=flips,
        go=journeys,
    )
    def subscribe(self, name, mode, style, receipt, go):
        self.come_back()
        if name not in self.view.subscribed:
            self.view.subscribed.append(name)
            self.say_subscribe(name, mode, style, receipt)
        self.arrive(go)

    def say_subscribe(self, name, mode, style, receipt):
        def meaning(_):
            if name in self.view.subscriptions:
                return False
            self.view.subscriptions[name] = mode
            self.view.everyone.add(name)
            return None

        headers = {"id": name, "destination": "q", "ack": mode, "prefetch-count": str(WINDOW)}
        self.say("SUBSCRIBE", headers, self.logged_in(meaning), style=style, receipt=receipt)

    def unsubscribe(self, name, receipt):
        if name in self.view.subscribed:
            self.view.subscribed.remove(name)

        def meaning(_):
            if self.view.subscriptions.pop(name, None) is None:
                return False
            held = self.view.held
            self.view.held = {ack: one for ack, one in held.items() if one[0] != name}
            return None

        self.say("UNSUBSCRIBE", {"id": name}, self.logged_in(meaning), receipt=receipt)

    def unanswered(self):
        return [ack for ack in self.view.held if ack not in self.view.answered]

    @precondition(unanswered)
    @rule(
        which=st.integers(0, 5),
        refuse=flips,
        transaction=inside,
        style=styles,
        receipt=flips,
        go=journeys,
    )
    def answer(self, which, refuse, transaction, style, receipt, go):
        view, unanswered = self.view, self.unanswered()
        ack = unanswered[which % len(unanswered)]
        name = view.held[ack][0]
        of_it = [one for one in unanswered if view.held[one][0] == name]
        named = of_it[: of_it.index(ack) + 1] if view.subscriptions.get(name) == "client" else [ack]
        view.answered += named
        self.say_answer(ack, view.named(transaction), style, refuse=refuse, receipt=receipt)
        self.arrive(go)

    def say_answer(self, ack, transaction, style, *, refuse, receipt):
        def meaning(receipt):
            view = self.view
            if ack not in view.held:
                return False
            opened = view.transactions.get(transaction)
            if transaction is not None and opened is None:
                return False
            name = view.held[ack][0]
            named = [ack]
            if view.subscriptions[name] == "client":
                of_it = [one for one, (other, _) in view.held.items() if other == name]
                named = of_it[: of_it.index(ack) + 1]
            texts = [view.held.pop(one)[1] for one in named]
            if opened is not None:
                opened.kept += texts
                opened.removed += [] if refuse else texts
            elif not refuse:
                self.happens(Effect(removed=texts), receipt)
            return None

        headers = {"id": ack} if transaction is None else {"id": ack, "transaction": transaction}
        self.say("NACK" if refuse else "ACK", headers, self.logged_in(meaning), style=style, receipt=receipt)

    @rule(name=names, receipt=flips, go=journeys)
    def open_transaction(self, name, receipt, go):
        self.come_back()
        if name not in self.view.begun:
            self.view.begun.append(name)
            self.say_begin(name, receipt)
        self.arrive(go)

    def say_begin(self, name, receipt):
        def meaning(_):
            if name in self.view.transactions:
                return False
            opened = self.view.transactions[name] = Effect()
            opened.kept = []
            return None

        self.say("BEGIN", {"transaction": name}, self.logged_in(meaning), receipt=receipt)

    @precondition(lambda self: self.view.begun)
    @rule(
        which=st.integers(0, 1),
        commit=st.sampled_from([True, True, True, False]),
        receipt=flips,
        go=journeys,
    )
    def finish(self, which, commit, receipt, go):
        name = self.view.begun.pop(which % len(self.view.begun))
        self.say_finish(name, commit=commit, receipt=receipt)
        self.arrive(go)

    def say_finish(self, name, *, commit, receipt):
        def meaning(receipt):
            opened = self.view.transactions.pop(name, None)
            if opened is None:
                return False
            if commit:
                self.happens(opened, receipt)
            return None

        headers = {"transaction": name}
        self.say("COMMIT" if commit else "ABORT", headers, self.logged_in(meaning), receipt=receipt)

    @rule(count=st.integers(2, 4), turns=st.integers(1, 4), seed=st.integers(1, 200))
    def commit_and_lose_power(self, count, turns, seed):
        """The broker's power fails while a transaction is on its way to the disk."""
        self.come_back()
        self.say_begin("t4", receipt=False)
        for _ in range(count):
            self.say_send("t4", 0, "", zero=False, receipt=False)
        self.say_finish("t4", commit=True, receipt=True)
        self.arrive("all")
        self.loop.turn(turns)
        self.broker_crashes(seed)

    def disconnect(self, receipt):
        def meaning(receipt):
            view = self.view
            view.state = "left"
            view.last = receipt
            view.subscriptions.clear()
            view.held.clear()
            view.transactions.clear()

        self.say("DISCONNECT", {}, self.logged_in(meaning), receipt=receipt)

    @rule(
        what=st.sampled_from(
            [
                "unsubscribe",
                "unsubscribe",
                "leave",
                "broken",
                "wrong",
                "login",
                "twice",
                "lost",
                "crash",
                "crash",
            ]
        ),
        which=st.integers(0, 40),
        receipt=flips,
        go=journeys,
    )
    def trouble(self, what, which, receipt, go):
        """What most clients do seldom, or never."""
        if what == "lost":
            self.lose()
        elif what == "crash":
            self.broker_crashes(which % 10)
        elif what == "unsubscribe":
            self.unsubscribe("s1" if which % 2 else "s:2", receipt)
        elif what == "leave":
            self.disconnect(receipt)
        elif what == "broken":
            self.put(BROKEN[which % len(BROKEN)], None)
        elif what == "wrong":
            command, headers = WRONG_FRAMES[which % len(WRONG_FRAMES)]
            self.say(command, headers, lambda _: False, receipt=receipt)
        elif what == "twice":
            self.twice(which, receipt)
        elif what == "login":
            self.lose(log_in=False)
            command, headers = WRONG_LOGINS[which % len(WRONG_LOGINS)]
            self.say(command, headers, lambda _: False, receipt=receipt)
        self.arrive(go)

    def twice(self, which, receipt):
        """What is right once, and said again."""
        if which % 4 == 0:
            self.connect(0)
        elif which % 4 == 1:
            self.say_begin("t3", receipt)
            self.say_begin("t3", receipt)
        elif which % 4 == 2:
            self.say_subscribe("s3", "client", 0, receipt)
            self.say_subscribe("s3", "client", 0, receipt)
        elif self.view.answered:
            self.say_answer(self.view.answered[-1], None, 0, refuse=False, receipt=receipt)

    # ---- the network and time

    def arrive(self, go):
        """So many bytes of what was said arrive, together."""
        size = BYTES.get(go, go)
        view = self.view
        data = bytes(view.outbox[:size])
        del view.outbox[:size]
        if data and not view.transport.closed:
            with self.loop.inside():
                view.protocol.data_received(data)
        view.arrived += len(data)
        while view.frames and view.frames[0].end <= view.arrived:
            frame = view.frames.popleft()
            if frame.meaning is not None:
                frame.meaning()
            elif view.state == "left":
                view.state = "careless"
            elif view.state != "careless":
                view.state = "wrong"

    def rest(self):
        self.loop.settle()
        self.loop.run(self.engine.journal.flush())
        self.loop.settle()
        self.read()

    @rule(how=st.sampled_from(["bytes", "turn", "durable", "durable", "durable"]), size=st.integers(1, 60))
    def wait(self, how, size):
        if how == "bytes":
            self.arrive(size)
        elif how == "turn":
            self.loop.turn()
        else:
            self.arrive("all")
            self.rest()

    def come_back(self):
        """A client that was thrown out, or has left, connects again."""
        if self.view.transport.closed:
            self.lose()

    def lose(self, *, log_in=True):
        """The connection is lost, in the middle of whatever is under way."""
        view = self.view
        self.loop.settle()
        self.read()
        with self.loop.inside():
            if not view.transport.closed:
                view.transport.closed = True
                view.protocol.connection_lost(None)
        self.loop.settle()
        self.open()
        if log_in:
            self.log_in()

    def broker_crashes(self, seed):
        """The store is as after some of the entries, all those that were confirmed among them,
        and no entry is there in part.
        """
        self.read()
        with self.loop.inside():
            self.engine.abandon()
        self.volume.crash(random.Random(seed) if seed else None)
        self.loop.run(self.engine.journal.close())
        self.loop.settle()
        self.start()
        found = self.browse()
        states = [self.sure]
        for effect in self.effects:
            states.append(effect.apply(states[-1]))
        assert found in states, f"{found} is none of {states}"
        self.sure, self.effects, self.confirmed = found, [], {}
        self.log_in()

    def browse(self):
        return [one.message.body.decode() for one in stored(self.engine, "q")]

    # ---- what the client reads

    def read(self):
        view = self.view
        for frame in view.reader.frames():
            assert not view.errors, "an ERROR is the last word"
            handle = getattr(self, f"read_{frame.command.lower()}")
            handle(frame.headers, frame.body)

    def read_connected(self, headers, _):
        assert not self.view.connected
        self.view.connected = True
        assert headers["version"] == "1.2"

    def read_receipt(self, headers, _):
        view = self.view
        view.got.append(headers["receipt-id"])
        assert view.got == view.receipts[: len(view.got)], "receipts come once each, in order"
        effect = self.confirmed.pop(headers["receipt-id"], None)
        if effect is not None:  # the journal keeps entries in order: what was before is durable too
            at = self.effects.index(effect) + 1
            for durable in self.effects[:at]:
                self.sure = durable.apply(self.sure)
            del self.effects[:at]

    def read_error(self, headers, body):
        self.view.errors.append((headers, body))
        assert headers["message"]
        assert "internal error" not in headers["message"], headers

    def read_message(self, headers, body):
        view, text = self.view, body.decode()
        assert headers["subscription"] in view.everyone, "a message for nobody"
        assert headers["destination"] == "/queue/q"
        assert headers["note"] == self.notes[text], "headers come as they were sent"
        assert int(headers["content-length"]) == len(body)
        assert headers["redelivered"] == "true" or text not in self.seen
        self.seen.add(text)
        if headers["subscription"] in view.subscriptions and view.state == "in":
            taken = [one for _, one in view.held.values()]
            taken += [one for opened in view.transactions.values() for one in opened.kept]
            assert text not in taken, "delivered twice at a time"
            view.held[headers["ack"]] = (headers["subscription"], text)
            mine = [ack for ack, one in view.held.items() if one[0] == headers["subscription"]]
            assert len(mine) <= WINDOW, "more than prefetch-count"

    # ---- what must hold

    @invariant()
    def the_end_is_right(self):
        self.complain()
        view = self.view
        if view.state == "wrong":
            self.loop.settle()
            self.read()
            assert view.transport.closed, "an ERROR ends it"
            assert len(view.errors) == 1, "exactly one ERROR ends it"
            assert view.errors[0][0].get("receipt-id") == view.fault
        elif view.frames and view.frames[0].meaning is None and view.arrived > view.frames[0].start:
            pass  # what has come of it may be enough to see that it is no frame
        elif view.state in ("new", "in"):
            assert not view.transport.closed
            assert not view.errors

    @invariant()
    def at_rest_all_is_answered(self):
        view, journal = self.view, self.engine.journal
        if self.loop._ready or journal.synced < journal.last_sequence:
            return
        self.read()
        if view.state in ("left", "careless"):
            assert view.transport.closed
        if view.state == "left" and not (view.frames and view.arrived > view.frames[0].start):
            assert not view.errors
            assert view.got == view.receipts
        if view.state == "in" and not view.transport.closed:  # by a frame that is seen early to be none
            assert view.got == view.receipts
        assert self.browse() == self.stored, "the store is what the frames have made of it"
        if view.state == "in" and not view.transport.closed:
            taken = {one for _, one in view.held.values()}
            taken |= {one for opened in view.transactions.values() for one in opened.kept}
            for name in view.subscriptions:
                if sum(of == name for of, _ in view.held.values()) < WINDOW:
                    assert set(self.stored) <= taken, f"{name} has credit and gets nothing"

    def teardown(self):
        try:
            if hasattr(self, "view"):
                self.rest()
                self.at_rest_all_is_answered()
                with self.loop.inside():
                    self.engine.abandon()
                self.loop.run(self.engine.journal.close())
        finally:
            super().teardown()
