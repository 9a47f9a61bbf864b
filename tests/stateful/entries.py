"""The plainest journal there is: all entries ever taken, and a loop that says what they mean."""

from broker.storage.entry import ADD, UPDATE


class Entries:
    """What was appended, and what it means."""

    def __init__(self):
        self.entries = []

    def state(self, count=None):
        """(id, kind, data, updates) of every record that lives after ``count`` entries."""
        live = {}
        for operations in self.entries[:count]:
            for action, kind, id_, data in operations:
                if action == ADD:
                    live[id_] = (id_, kind, data, [])
                elif action == UPDATE:
                    live[id_][3].append((kind, data))
                else:
                    del live[id_]
        return list(live.values())


def plain(recovered):
    return [
        (one.id, one.kind, one.data, [tuple(update) for update in one.updates]) for one in recovered.records
    ]
